package memory_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// What is denied changes nothing, but it notices that the clock has gone back, so that it is not denied until that is
// as late as before. A cleaning notices it, too.
func TestDenialsNoticeAClockThatGoesBack(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, a := range algorithms {
		for _, years := range []time.Duration{1, 30, 140} {
			clock := backendtest.NewClock()
			clock.Advance(140 * year)
			c := caller{t, newBackend(t, clock), a}
			c.set("k", time.Minute, 3)
			clock.Advance(-years * year)
			for steps := 0; ; steps++ {
				require.LessOrEqual(t, steps, 4, "%v, after %d years", a, years)
				granted, windows := c.takeAll(limitOf(a, time.Minute, 3).For("k", 3), limitOf(a, time.Hour, 3).For("other", 1))
				if granted {
					break
				}
				clock.Advance(min(windows[0].RetryAfter, 30*time.Second))
			}
			c.set("cleaned", time.Minute, 3)
			clock.Advance(-time.Hour)
			require.Zero(t, c.Clean())
			clock.Advance(time.Minute)
			require.Equal(t, 2, c.Clean(), "all but the other")
		}
	}
}

// A window ends after what is left of it, also if that and the time since the last reading together, or the time since
// then, are more than a [time.Duration] holds.
func TestWindowsEndAfterWhatIsLeft(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, steps := range [][]time.Duration{{99 * year}, {math.MaxInt64, math.MaxInt64, time.Hour}, {-math.MaxInt64, -time.Hour}} {
		clock := backendtest.NewClock()
		b := newBackend(t, clock)
		for _, d := range steps {
			clock.Advance(d)
		}
		w, err := b.Charge(t.Context(), "k", limitOf(window.TokenBucket, window.MaxScale, 1), 2)
		require.NoError(t, err)
		require.Greater(t, w.Left, 200*year)
		require.True(t, w.ExpiresAt.Equal(clock.Now().Add(w.Left)), w.ExpiresAt)
	}
}

func TestAlignedWindowsFollowTheWallClock(t *testing.T) {
	b := memory.New()
	defer b.Close()
	w := caller{t, b, window.AlignedWindow}.hit("k", time.Hour)
	require.Equal(t, w.ExpiresAt.UTC().Truncate(time.Hour), w.ExpiresAt.UTC())
	require.WithinDuration(t, time.Now(), w.ExpiresAt, time.Hour)
}
