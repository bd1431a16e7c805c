// Package backendtest tests implementations of window.Backend.
//
//	func TestMyBackend(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
//			clock := backendtest.NewClock()
//			return backendtest.Subject{Backend: mybackend.New(mybackend.WithClock(clock.Now)), Clock: clock}
//		})
//	}
package backendtest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Clock is the clock of a backend under test.
type Clock interface {
	Now() time.Time
	// Advance moves the clock forward. It never advances by itself.
	Advance(d time.Duration)
}

// NewClock returns a clock that shows the start of 2009.
func NewClock() Clock {
	return &clock{now: time.Date(2009, time.January, 1, 0, 0, 0, 0, time.UTC)}
}

type clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// Now implements Clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance implements Clock.
func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Subject is a backend under test. It has no windows yet.
type Subject struct {
	Backend window.Backend
	Clock   Clock
	// Second is another backend on the same store, such as that of a second client. Random calls of
	// both are compared with one model. Nil if the backend is its own store, and so has no second one.
	Second window.Backend
	// Without has the methods that the backend leaves out, but for lists, which return window.ErrUnsupported, each with
	// the reason. Tests that need them are skipped. The others must be there.
	Without map[string]string
	// Algorithm is that of most limits of the tests. Run them for each algorithm that the backend has:
	// the tests are those of fixed windows or those of rolling algorithms, with the vectors of this one.
	// Some tests compare all algorithms that Check accepts. Default: window.FixedWindow.
	Algorithm window.Algorithm
	// Precision is how much later than the end of a window its ExpiresAt may be, and how much longer
	// than necessary a RetryAfter. They must not be earlier or shorter. The Precision that Check
	// returns must not be more. With a rolling algorithm, it is also the resolution of the backend's
	// clock. Default: 0.
	Precision time.Duration
	// MaxCount is the MaxCount of the Traits that Check returns, 100 or more. Limits with a larger Max
	// must fail with window.ErrRange, and a hit that leads to a larger count must be refused. Default:
	// no bound.
	MaxCount uint64
	// SkipsDenied says that the backend may not count hits on a window that is full.
	SkipsDenied bool
	// RefusesHits says that hits over the limit are refused and count nothing, although the
	// algorithm is one of fixed windows: Refused is set. SkipsDenied must be set, too.
	RefusesHits bool
	// MinScale is the shortest scale that the backend accepts, if that is over 100 ms. The tests
	// then take place on a clock that is that much faster.
	MinScale time.Duration
	// MayLose says that GiveBack may return false although the window is open, and give nothing
	// back. If it follows the take at once, it must not.
	MayLose bool
	// RoundsTokens says that a token of a token bucket may take a little longer to come back than
	// Scale/Max, if that is not a whole number of nanoseconds.
	RoundsTokens bool
	// Close closes the backend. After it, all calls must fail with window.ErrClosed.
	// Default: the backend's method Close() error, if it has one.
	Close func()
}

// Run tests backends. For each subtest, it calls start for a new one, which should register its
// cleanup with t.Cleanup. Subtests that do not apply to the Subject are skipped, and say why.
func Run(t *testing.T, start func(t *testing.T) Subject) {
	suite{start, func(t *testing.T, f func(*testing.T)) { f(t) }}.run(t)
}

// RunInBubbles is Run with each subtest in a bubble of package [testing/synctest], for backends
// that wait: such calls take no real time there. Start is called in the bubble, too. The Clock must
// be that of the bubble, see [BubbleClock].
func RunInBubbles(t *testing.T, start func(t *testing.T) Subject) {
	suite{start, synctest.Test}.run(t)
}

// BubbleClock is the clock of a bubble of package [testing/synctest].
type BubbleClock struct{}

// Now implements Clock.
func (BubbleClock) Now() time.Time { return time.Now() }

// Advance implements Clock.
func (BubbleClock) Advance(d time.Duration) { time.Sleep(d) }

// bounded returns n, or MaxCount if that is less.
func (s Subject) bounded(n uint64) uint64 {
	if s.MaxCount > 0 {
		return min(n, s.MaxCount)
	}
	return n
}

// asCounted returns what a backend whose hits are never refused, and which has no bound, would return for
// a hit of n.
func (s Subject) asCounted(w window.Window, n uint64) window.Window {
	if w.Refused && !s.Algorithm.Rolling() && (s.RefusesHits || s.MaxCount > 0 && w.Count+n > s.MaxCount) {
		w.Count += n
		w.Refused = false
		w.RetryAfter = 0
	}
	return w
}

// shortest is the shortest scale of the tests.
const shortest = 100 * time.Millisecond

// stretch returns how long something takes in the tests of s that takes d for a backend that
// accepts all scales.
func (s Subject) stretch(d time.Duration) time.Duration {
	return d * max(1, (s.MinScale+shortest-1)/shortest)
}
