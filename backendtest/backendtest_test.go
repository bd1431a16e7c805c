package backendtest_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

func TestCorrectBackendsPass(t *testing.T) {
	for _, a := range tested() {
		t.Run(a.String(), func(t *testing.T) { backendtest.Run(t, start(a, false, none)) })
	}
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow} {
		t.Run(a.String()+" that skips denied hits", func(t *testing.T) { backendtest.Run(t, start(a, true, none)) })
	}
}

// tested returns the algorithms of the tests below: of a short test, one that is rolling and one that is not.
func tested() (all []window.Algorithm) {
	if testing.Short() {
		return []window.Algorithm{window.AlignedWindow, window.TokenBucket}
	}
	for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
		all = append(all, a)
	}
	return all
}

// TestBoundedBackendsPass has backends of one algorithm with small counts. Those of rolling algorithms have
// long scales and a coarse clock.
func TestBoundedBackendsPass(t *testing.T) {
	for _, a := range tested() {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(*testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				s := backendtest.Subject{Clock: clock, Algorithm: a, SkipsDenied: true, MaxCount: 200, Precision: time.Second}
				p := newPlain(clock.Now, none)
				if a.Rolling() {
					s.Precision, s.RoundsTokens, s.MinScale = time.Microsecond, true, time.Second
					p.mu.clock = func() time.Time { return clock.Now().Truncate(s.Precision) }
					p.coarse = s.Precision
				}
				p.has, p.skips, p.maxCount = []window.Algorithm{a}, true, s.MaxCount
				s.Backend = p
				return s
			})
		})
	}
}

// Run tests a backend of your own.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMyBackend
		for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
			t.Run(a.String(), func(t *testing.T) {
				backendtest.Run(t, func(t *testing.T) backendtest.Subject {
					clock := backendtest.NewClock()
					return backendtest.Subject{Backend: newPlain(clock.Now, none), Clock: clock, Algorithm: a}
				})
			})
		}
	}
}

func TestClockAdvancesOnlyWhenAdvanced(t *testing.T) {
	clock := backendtest.NewClock()
	if now := clock.Now(); !now.Equal(time.Date(2009, time.January, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the time is %v", now)
	}
	was := clock.Now()
	clock.Advance(time.Minute)
	if passed := clock.Now().Sub(was); passed != time.Minute {
		t.Errorf("%v have passed", passed)
	}
}
