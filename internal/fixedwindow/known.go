package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/internal/coalesce"
)

// What an entry knows of the active window decides whether a hit needs a request.

// denies reports whether h is denied from memory. The window was over the limit when it was
// last read, that was not long ago, and it has certainly not ended since. The caller holds mu,
// and the window is known.
func (e *entry[T]) denies(h coalesce.Hit, now time.Time) bool {
	s := &e.state
	if h.Must || s.count <= h.Limit || !now.Before(s.earliestEnd) {
		return false
	}
	age := now.Sub(s.seen)
	return age >= 0 && age < e.denialMemory
}

// outdated reports whether the window must be read before h is decided: it is over the limit but
// may have ended, or h adds so much that the last known count is too old. The caller holds mu, and
// the window is known.
func (e *entry[T]) outdated(h coalesce.Hit) bool {
	return e.state.count > h.Limit || h.Increment > share(maxValue[T](), h.Limit) || overflows(h, e.state.count)
}

// learn makes the window of a live record the known one, and returns its state.
func (e *entry[T]) learn(o observation) state {
	s := o.state(e.timing)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known && e.state.bucket == s.bucket {
		s.narrow(e.state)
	}
	e.state, e.known = s, true
	return s
}

// learnOpened makes a window that was opened the known one.
func (e *entry[T]) learnOpened(s state) {
	e.mu.Lock()
	e.state, e.known = s, true
	e.mu.Unlock()
}

// forget forgets the known window, because it is over or another one has taken its name.
func (e *entry[T]) forget() {
	e.mu.Lock()
	e.known = false
	e.mu.Unlock()
}

// active reports whether a window is known that is not certainly over.
func (e *entry[T]) active(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known && now.Before(e.state.latestEnd)
}

// current returns the known window and the name of its record. It returns false if no window is
// known, or if it is certainly over.
func (e *entry[T]) current(now time.Time) (s state, name []byte, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.known || !now.Before(e.state.latestEnd) {
		return state{}, nil, false
	}
	return e.state, e.currentName(), true
}

// currentName returns the name of the known window's record. The caller holds mu.
func (e *entry[T]) currentName() []byte {
	if e.nameBucket != e.state.bucket || e.name == nil {
		e.name, e.nameBucket = e.appendName(nil, e.state.bucket), e.state.bucket
	}
	return e.name
}
