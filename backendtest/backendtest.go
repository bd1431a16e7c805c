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
	// Without has the methods that the backend leaves out, which return window.ErrUnsupported, each with the reason.
	// Tests that need them are skipped. The others must be there.
	Without map[string]string
	// Algorithm is that of most limits of the tests, and of the vectors. Run them for each algorithm that the backend
	// has. Random calls are of all algorithms that Check accepts. Default: window.FixedWindow.
	Algorithm window.Algorithm
	// SkipsDenied says that hits of fixed windows that are over the limit may not be counted, or be refused.
	SkipsDenied bool
	// MayLose says that GiveBack may return false although the window is open, and give nothing
	// back, as the window may get another ID. If it follows the take at once, it must not.
	MayLose bool
	// Close closes the backend. After it, all calls must fail with window.ErrClosed.
	// Default: the backend's method Close() error, if it has one.
	Close func()
}

// Run tests backends. For each subtest, it calls start for a new one, which should register its
// cleanup with t.Cleanup. Subtests that do not apply to the Subject are skipped, and say why.
func Run(t *testing.T, start func(t *testing.T) Subject) {
	run(t, start, func(t *testing.T, f func(*testing.T)) { f(t) })
}

// RunInBubbles is Run with each subtest in a bubble of package [testing/synctest], for backends
// that wait: such calls take no real time there. Start is called in the bubble, too. The Clock must
// be that of the bubble, see [BubbleClock].
func RunInBubbles(t *testing.T, start func(t *testing.T) Subject) {
	run(t, start, synctest.Test)
}

// BubbleClock is the clock of a bubble of package [testing/synctest].
type BubbleClock struct{}

// Now implements Clock.
func (BubbleClock) Now() time.Time { return time.Now() }

// Advance implements Clock.
func (BubbleClock) Advance(d time.Duration) { time.Sleep(d) }
