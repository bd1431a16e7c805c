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
	"time"

	"github.com/throttr-go/throttr/window"
)

// Clock is the time that a backend goes by in a test.
type Clock interface {
	Now() time.Time
	// Advance moves the clock forward. It never moves by itself.
	Advance(d time.Duration)
}

// NewClock returns a clock that stands at the start of 2030.
func NewClock() Clock {
	return &clock{now: time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)}
}

type clock struct {
	mu  sync.Mutex
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

// Subject is a backend to test, which holds no windows yet.
type Subject struct {
	Backend window.Backend
	Clock   Clock
	// Algorithm is when the backend's windows open and end.
	Algorithm window.Algorithm
	// Exact is how far the end of a window that the backend tells may be too late. It is
	// never too early. Default: 0.
	Exact time.Duration
	// MaxCount is the largest limit and count that the backend takes, 100 or more. Default:
	// no bound.
	MaxCount uint64
	// SkipsDenied says that hits may be left uncounted once a window is full.
	SkipsDenied bool
}

// Run tests the backends that start makes, a new one for each subtest. Let start register
// with t.Cleanup whatever ends them.
func Run(t *testing.T, start func(t *testing.T) Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"a window ends one scale after it has started", testEnd},
		{"a window tells when it started and was last added to", testTimes},
		{"keys and scales are independent", testIndependence},
		{"concurrent hits each have a place of their own", testPlaces},
		{"of concurrent openings of a window one opens it", testOpenings},
		{"concurrent hits are let through up to the limit and no further", testLimit},
		{"increments and limits of one key can differ", testMixed},
		{"concurrent calls of all methods leave nothing behind", testCrowd},
		{"counts do not wrap around", testLargest},
		{"Set replaces the window", testSet},
		{"Reset and Delete end windows", testDelete},
		{"a call whose context has ended is not made", testContext},
		{"random calls agree with a model", testModel},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, start(t)) })
	}
	t.Run("vectors", func(t *testing.T) { testVectors(t, start) })
}

// bounded returns n, or what the subject can take of it.
func (s Subject) bounded(n uint64) uint64 {
	if s.MaxCount > 0 {
		return min(n, s.MaxCount)
	}
	return n
}

// late reports whether an end that was told, got, is right for one that is wanted.
func (s Subject) late(want, got time.Time) bool {
	return got.Before(want) || got.Sub(want) > s.Exact
}
