package throttr

import (
	"context"
	"fmt"
)

// setTries is how often a Set begins anew because another client has opened a window
// while it removed one.
const setTries = 8

// perform does a Set or Reset.
func (l *lane[T]) perform(v *visit) {
	var err error
	if v.task == setTask {
		err = l.set(v.increment)
	} else {
		err = l.reset()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.known = false
		l.fail(v, l.reason(err))
	case v.task == setTask:
		l.answer(v, v.increment, l.backend.now())
	default:
		v.finish()
	}
}

// reset removes every live record of the key.
func (l *lane[T]) reset() error {
	live, err := l.look(l.backend.ctx, l.timing.bucket(l.backend.now()))
	if err != nil {
		return err
	}
	l.forget()
	return l.purgeAll(live)
}

// purgeAll removes records.
func (l *lane[T]) purgeAll(live []sight) error {
	if len(live) == 0 {
		return nil
	}
	cl := l.request(loose)
	for _, s := range live {
		l.purge(cl, s.bucket)
	}
	_, _, _, err := l.ask(l.backend.ctx, cl)
	if err == nil {
		l.backend.client.calls.Put(cl)
	}
	return err
}

// set opens a window with a count in the present bucket, or in one of the next where
// its name is used up, and removes every other.
func (l *lane[T]) set(count uint64) error {
	bk := l.backend
	present := l.timing.bucket(bk.now())
	b := present
	for try := 0; try < setTries && b <= present+lookReach; try++ {
		live, err := l.look(bk.ctx, present)
		if err != nil {
			return err
		}
		done, err := l.replace(live, b, present, count)
		if done || err != nil {
			return err
		}
		if !contains(live, b) {
			b++ // the name is used up, or has been taken just now
		}
	}
	return bk.refused(l.key, true, errNoRecord)
}

func contains(live []sight, bucket int64) bool {
	for _, s := range live {
		if s.bucket == bucket {
			return true
		}
	}
	return false
}

// replace removes the live records and inserts one in bucket b, in one batch that
// nothing interrupts. It returns false if b was not free.
func (l *lane[T]) replace(live []sight, b, around int64, count uint64) (done bool, err error) {
	bk := l.backend
	if !bk.purger.reserve() {
		return false, bk.refused(l.key, false, fmt.Errorf("%w: %d records are yet to be removed", ErrOverloaded, bk.purger.max))
	}
	cl := l.request(alone)
	for _, s := range live {
		l.purge(cl, s.bucket)
	}
	l.insert(cl, b, count)
	for o := around - lookReach; o <= around+lookReach; o++ {
		if o != b {
			l.query(cl, o)
		}
	}
	answers, lo, hi, err := l.ask(bk.ctx, cl)
	if err != nil {
		if SafeToRetry(err) {
			bk.purger.release()
		} else {
			bk.purger.add(l, b, bk.now().Add(l.timing.scale))
		}
		return false, err
	}
	inserted := answers[len(live)].ok
	var late []sight // opened since the look
	for o, i := around-lookReach, len(live)+1; o <= around+lookReach; o++ {
		if o != b {
			if s := sighting(o, answers[i], lo, hi); s.live(l.timing) {
				late = append(late, s)
			}
			i++
		}
	}
	bk.client.calls.Put(cl)
	if !inserted {
		bk.purger.release()
		return false, nil
	}
	bk.purger.add(l, b, hi.Add(l.timing.scale))
	l.mu.Lock()
	l.window = window{bucket: b, count: count, seen: hi, endLo: lo.Add(l.timing.scale), endHi: hi.Add(l.timing.scale)}
	l.known = true
	l.mu.Unlock()
	return true, l.purgeAll(late)
}

// peek reads the active window, or looks for it, for a caller who only wants to know.
func (l *lane[T]) peek(ctx context.Context) (Window, error) {
	l.mu.Lock()
	w, known := l.window, l.known
	l.mu.Unlock()
	if known {
		s, err := l.read(ctx, w.bucket, 0)
		if err != nil {
			return Window{}, err
		}
		if s.live(l.timing) {
			return l.report(s, &w), nil
		}
	}
	now := l.timing.bucket(l.backend.now())
	live, err := l.look(ctx, now)
	if err != nil {
		return Window{}, err
	}
	s, ok, err := l.agree(ctx, now, live)
	if !ok || err != nil {
		return Window{}, err
	}
	return l.report(s, nil), nil
}

// report makes a Window of a sight and of what was known of it before.
func (l *lane[T]) report(s sight, old *window) Window {
	w := window{bucket: s.bucket}
	w.endLo, w.endHi = s.ends(l.timing)
	if old != nil {
		w.narrow(*old)
	}
	return w.result(l.timing, s.count, l.backend.now())
}
