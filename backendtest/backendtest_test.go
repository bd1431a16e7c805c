package backendtest

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// TestBoundedBackendsPass has correct backends of one algorithm with small counts, which do not count all denied
// hits. Those of rolling algorithms have a coarse clock. That others pass is seen by the tests of
// package memory.
func TestBoundedBackendsPass(t *testing.T) {
	for _, a := range limits.Algorithms {
		if testing.Short() && a != window.FixedWindow && a != window.TokenBucket {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			Run(t, func(t *testing.T) Subject {
				clock := NewClock()
				now, precision := clock.Now, time.Second
				if a.Rolling() {
					precision = time.Microsecond
					now = func() time.Time { return clock.Now().Truncate(precision) }
				}
				store := memory.New(memory.WithClock(now))
				t.Cleanup(func() { store.Close() })
				return Subject{
					Backend: newWrong(store, now, bounds(200, a, precision)), Clock: clock, Algorithm: a, SkipsDenied: true,
					Close: func() { store.Close() },
				}
			})
		})
	}
}

func TestClockAdvancesOnlyWhenAdvanced(t *testing.T) {
	clock := NewClock()
	if now := clock.Now(); !now.Equal(time.Date(2009, time.January, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the time is %v", now)
	}
	was := clock.Now()
	clock.Advance(time.Minute)
	if passed := clock.Now().Sub(was); passed != time.Minute {
		t.Errorf("%v have passed", passed)
	}
}
