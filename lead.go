package throttr

import (
	"context"
	"time"
)

// canLead reports whether v can be counted by its own caller, without a goroutine: nobody
// else is here, and the window is known and not full. The mutex is held.
func (l *lane[T]) canLead(v *visit, now time.Time) bool {
	return !l.serving && v.task < setTask && l.known && now.Before(l.window.endHi) && !l.doubtful(v)
}

// lead counts v in the known window: one round trip, with nobody else in it, so that its
// caller can leave when he wants to. Those who have come meanwhile are then served.
//
// It returns false where the window has turned out to be over, or replaced; then v is still to
// be served, as one that was counted in contested if that is found.
func (l *lane[T]) lead(ctx context.Context, v *visit, bucket int64, name []byte, since time.Time) (done bool) {
	s, err := l.read(ctx, bucket, name, v.increment, since)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.fail(v, l.fate(err, !SafeToRetry(err)))
	case !s.live(l.timing):
		l.known = false
		return false
	case l.replaced(s):
		l.contested = s
		return false
	default:
		l.see(s)
		l.answer(v, s.count, s.hi)
	}
	if l.serving = l.queue.len() > 0; l.serving {
		l.startServing()
	}
	return true
}
