package backendtest_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// TestBoundedBackendsPass has correct backends of one algorithm with small counts, which do not count all denied
// hits. Those of rolling algorithms have long scales and a coarse clock. That others pass is seen by the tests of
// package memory.
func TestBoundedBackendsPass(t *testing.T) {
	for _, a := range limits.Algorithms {
		if testing.Short() && a != window.FixedWindow && a != window.TokenBucket {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				clock := backendtest.NewClock()
				s := backendtest.Subject{Clock: clock, Algorithm: a, SkipsDenied: true, MaxCount: 200, Precision: time.Second}
				now := clock.Now
				if a.Rolling() {
					s.Precision, s.RoundsTokens, s.MinScale = time.Microsecond, true, time.Second
					now = func() time.Time { return clock.Now().Truncate(s.Precision) }
				}
				store := memory.New(memory.WithClock(now))
				s.Close = func() { store.Close() }
				t.Cleanup(s.Close)
				s.Backend = newWrong(store, now, bounds(s))
				return s
			})
		})
	}
}

// Run tests a backend of your own.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMyBackend
		for _, a := range limits.Algorithms {
			t.Run(a.String(), func(t *testing.T) {
				backendtest.Run(t, func(t *testing.T) backendtest.Subject {
					clock := backendtest.NewClock()
					return backendtest.Subject{Backend: memory.New(memory.WithClock(clock.Now)), Clock: clock, Algorithm: a}
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
