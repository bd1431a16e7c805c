package fixedwindow

import (
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/slot"
)

// state is what is known of an open window.
type state struct {
	id    int64     // identifies the window
	count uint64    // when the window was last read
	seen  time.Time // when that was, at the earliest
	read  time.Time // when that was, at the latest
	// The window ends between these times, by the backend's clock.
	earliestEnd, latestEnd time.Time

	conn   any       // where takes were counted; nil if there were none
	slot   slot.ID   // unless the window is aligned
	until  time.Time // earliestEnd by the monotonic clock, unless the window is aligned
	bucket int64     // of an aligned window
}

// result returns the window with a count. Its end is never too early, and never more than a scale
// away.
func (s *state) result(scale time.Duration, count uint64, now time.Time) coalesce.Result {
	left := min(max(s.latestEnd.Sub(now), 1), scale)
	return coalesce.Result{Count: count, ExpiresAt: now.Add(left), Left: left, ID: s.id}
}

// narrow narrows the end of a window to what was known of it before. It returns false, and
// changes nothing, if the two contradict each other: they are different windows. The window keeps
// its ID if it is certainly the same.
func (s *state) narrow(old *state, guard time.Duration) (same bool) {
	if s.slot != old.slot || s.bucket != old.bucket ||
		old.earliestEnd.After(s.latestEnd) || s.earliestEnd.After(old.latestEnd) {
		return false
	}
	if s.conn == nil {
		s.conn = old.conn
	}
	if s.follows(old, guard) && (old.conn == nil || s.conn == old.conn) {
		s.id = old.id
	}
	if old.earliestEnd.After(s.earliestEnd) {
		s.earliestEnd, s.until = old.earliestEnd, old.until
	}
	if old.latestEnd.Before(s.latestEnd) {
		s.latestEnd = old.latestEnd
	}
	return true
}

// follows reports whether a window is certainly the same as one of the same slot whose end may be
// the same. Another window of the slot takes two Resets in between. So it is opened two guards
// later at least, and ends two guards later.
func (s *state) follows(old *state, guard time.Duration) bool {
	return guard == 0 || s.read.Sub(old.seen) < guard || s.latestEnd.Before(old.earliestEnd.Add(2*guard))
}

// known is what is known of the open window of a key and scale. It decides whether a hit needs a
// request.
type known[T codec.Value] struct {
	scale        time.Duration
	guard        time.Duration // of the slots; 0 if windows are aligned
	denialMemory time.Duration // for how long a denial is remembered; negative: not at all

	// mu guards the fields below. They change only during Refresh, Count and operations, which do
	// not overlap.
	mu    sync.Mutex
	ok    bool // there is a known window
	state state
}

// Admit implements [coalesce.Window].
func (k *known[T]) Admit(b coalesce.Batch, h coalesce.Hit) (coalesce.Verdict, coalesce.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.state
	switch {
	case b.Fresh && !k.ok:
		// There is no window. The batch opens one.
		if h.Take && h.Increment > h.Limit {
			return coalesce.Decided, coalesce.Result{Refused: true}, nil
		}
	case !k.ok || !b.Fresh && !b.Now.Before(s.earliestEnd):
		return coalesce.Defer, coalesce.Result{}, nil
	case h.Must || !over(h, s.count):
	case b.Read || k.denies(b.Now):
		r := s.result(k.scale, s.count, b.Now)
		r.Refused = h.Take
		return coalesce.Decided, r, nil
	default: // the window may have been reset
		return coalesce.Defer, coalesce.Result{}, nil
	}
	if !fits(maxValue[T](), b, h) {
		return coalesce.Defer, coalesce.Result{}, nil
	}
	return coalesce.Join, coalesce.Result{}, nil
}

// over reports whether a hit is over its limit in a window with a count. Of the others, only takes
// depend on the hit.
func over(h coalesce.Hit, count uint64) bool {
	if h.Take {
		return count > h.Limit || h.Increment > h.Limit-count
	}
	return count > h.Limit
}

// denies reports whether hits over the limit are denied from memory: the window was read not long
// ago, and has certainly not ended since. The caller holds mu, and the window is known.
func (k *known[T]) denies(now time.Time) bool {
	age := now.Sub(k.state.seen)
	return age >= 0 && age < k.denialMemory && now.Before(k.state.earliestEnd)
}

// learn makes a window the known one. It gets a new ID if it is another one than was known.
func (k *known[T]) learn(s *state, newID func() int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ok {
		s.narrow(&k.state, k.guard)
	}
	if s.id == 0 {
		s.id = newID()
	}
	k.state, k.ok = *s, true
}

// Refuse implements [coalesce.Window].
func (k *known[T]) Refuse(n uint64) {
	k.mu.Lock()
	k.state.count -= min(k.state.count, n)
	k.mu.Unlock()
}

// forget forgets the known window, because it is over or was reset.
func (k *known[T]) forget() {
	k.mu.Lock()
	k.ok = false
	k.mu.Unlock()
}

// current returns the known window. It returns false if there is none.
func (k *known[T]) current() (s state, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.ok
}

// open returns the known window. It returns false if it may be over.
func (k *known[T]) open(now time.Time) (s state, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.ok && now.Before(k.state.earliestEnd)
}

// last returns what is known of the open window, and whether that is so recent that it can refuse a
// take. It returns false if no window is known.
func (k *known[T]) last(now time.Time) (r coalesce.Result, recent, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ok || !now.Before(k.state.earliestEnd) {
		return r, false, false
	}
	return k.state.result(k.scale, k.state.count, now), k.denies(now), true
}

// active reports whether a window is known that is not certainly over.
func (k *known[T]) active(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ok && now.Before(k.state.latestEnd)
}
