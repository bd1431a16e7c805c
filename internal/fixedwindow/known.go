package fixedwindow

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// state is what is known of an open window.
type state struct {
	slot.Window
	id        int64 // identifies the window
	conn      any   // where takes were counted; nil if there were none
	undecided bool  // the count may contain takes that are refused, until subtract is called
}

// window returns what callers see of the window. Its end is never more than a scale away.
func (s *state) window(scale time.Duration, now time.Time) window.Window {
	left := min(max(s.Latest.Sub(now), 1), scale)
	return window.Window{Count: s.Count, ExpiresAt: now.Add(left), Left: left, ID: s.id}
}

// narrow narrows the end of a window to what was known of it before. The window keeps its ID if it
// is certainly the same.
func (s *state) narrow(old *state, guard time.Duration) {
	if s.conn == nil {
		s.conn = old.conn
	}
	if s.Slot == old.Slot && s.Narrow(&old.Times, guard) && (old.conn == nil || s.conn == old.conn) {
		s.id = old.id
	}
}

// known is what is known of the open window of a count. It decides whether a hit needs a
// request.
type known struct {
	bands        *slot.Bands
	ids          *atomic.Int64 // the last ID of a window
	denialMemory time.Duration // for how long a denial is remembered; negative: not at all

	// mu guards the fields below. They change only during Refresh, Count and operations, which do
	// not overlap, and in learnUnlessKnown.
	mu      sync.Mutex
	ok      bool // there is a known window
	state   state
	forgets uint64 // counts calls of forget
}

// admit implements [coalesce.Windows].
func (k *known) admit(b coalesce.SharedHits, h coalesce.Hit) (coalesce.Verdict, window.Window) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.state
	switch {
	case b.Fresh && !k.ok:
		// There is no window. The hit opens one.
		if h.Take && h.Increment > h.Max {
			return coalesce.Decided, window.Window{Refused: true}
		}
	case !k.ok || !b.Fresh && !b.Now.Before(s.Until):
		return coalesce.Defer, window.Window{}
	case h.Must || !over(h, s.Count): // it is counted, with others if it fits
	case b.QueuedBefore || k.mayRefuse(b.Now):
		w := s.window(k.bands.Scale, b.Now)
		w.Refused = h.Take // a hit is denied by its Count
		return coalesce.Decided, w
	default: // the window may have been reset
		return coalesce.Defer, window.Window{}
	}
	if !fits(k.bands.Largest, b, h) {
		return coalesce.Defer, window.Window{}
	}
	return coalesce.Share, window.Window{}
}

// over reports whether a hit is over its limit in a window with a count. Of the others, only takes
// depend on the hit.
func over(h coalesce.Hit, count uint64) bool {
	if h.Take {
		return count > h.Max || h.Increment > h.Max-count
	}
	return count > h.Max
}

// mayRefuse reports whether hits over the limit are denied from memory: the count is that of the window, which was
// read recently, and has certainly not ended since. The caller holds mu, and the window is known.
func (k *known) mayRefuse(now time.Time) bool {
	return now.Sub(k.state.Sent) < k.denialMemory && !k.state.undecided && k.state.Open(now)
}

// learn makes a window the known one. It gets a new ID if it is another one than was known.
func (k *known) learn(s *state) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.identify(s)
	k.state, k.ok = *s, true
}

// identify compares a window with the known one, and gives it an ID. The caller holds mu.
func (k *known) identify(s *state) {
	if k.ok {
		s.narrow(&k.state, k.bands.Guard)
	}
	if s.id == 0 {
		s.id = k.ids.Add(1)
	}
}

// learnUnlessKnown is learn for a window that was read while hits and operations could be under way. It
// becomes the known one only if none is known, and if forget has not been called since the requests were
// sent: the window may have been reset. Forgets is what forgetCount returned then.
func (k *known) learnUnlessKnown(s *state, forgets uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.identify(s)
	if !k.ok && k.forgets == forgets {
		k.state, k.ok = *s, true
	}
}

// forgetCount returns how often forget has been called.
func (k *known) forgetCount() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.forgets
}

// outcomeOf returns the outcome of hits that were counted in the window that was just learned, or
// which its counter can't hold.
func (k *known) outcomeOf(counted bool, now time.Time) coalesce.Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &k.state
	return coalesce.Outcome{WindowOpen: true, Full: !counted, Window: s.window(k.bands.Scale, now)}
}

// fill makes a charge that the counter can't hold, as was just learned: it counts what there is room for,
// so that the count stays at the largest. A charge shares no request: see fits.
func (k *known) fill(b coalesce.SharedHits, count func(coalesce.SharedHits) coalesce.Outcome) (o coalesce.Outcome) {
	for range maxTries {
		s, ok := k.current()
		if !ok {
			break
		}
		b.Sum, b.Now = k.bands.Largest-s.Count, time.Now()
		if o = count(b); !o.Full {
			return o
		}
	}
	return coalesce.NotCounted
}

// subtract lowers the known count: n was given back, or is about to be. It implements Subtract of [coalesce.Windows].
func (k *known) subtract(n uint64) {
	k.mu.Lock()
	k.state.Count -= min(k.state.Count, n)
	k.state.undecided = false
	k.mu.Unlock()
}

// forget forgets the known window, because it is over or was reset.
func (k *known) forget() {
	k.mu.Lock()
	k.ok = false
	k.forgets++
	k.mu.Unlock()
}

// current returns the known window. It returns false if there is none.
func (k *known) current() (s state, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.ok
}

// toJoin returns the slot of the known window, and until when it can be joined. It
// returns false if none is known.
func (k *known) toJoin() (x slot.ID, until time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state.Slot, k.state.Until, k.ok
}

// certainlyOpen returns the known window. It returns false if it may be over.
func (k *known) certainlyOpen(now time.Time) (s state, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state, k.ok && k.state.Open(now)
}

// recall returns what is known of the open window, and whether that may refuse a take. It returns false if no
// window is known to be open.
func (k *known) recall(now time.Time) (w window.Window, mayRefuse, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ok || !k.state.Open(now) {
		return w, false, false
	}
	return k.state.window(k.bands.Scale, now), k.mayRefuse(now), true
}

// maybeOpen reports whether a window is known that is not certainly over.
func (k *known) maybeOpen(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ok && now.Before(k.state.Latest)
}
