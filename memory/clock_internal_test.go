package memory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Aligned and sliding windows follow the wall clock, also between two readings of it.
func TestAlignedWindowsFollowTheWallClockBetweenReadings(t *testing.T) {
	for _, a := range []window.Algorithm{window.AlignedWindow, window.SlidingWindow} {
		synctest.Test(t, func(t *testing.T) {
			b := New()
			defer b.Close()
			hit := func(key string) {
				w, err := b.Hit(t.Context(), key, LimitOf(a, time.Minute, 1000), 1)
				require.NoError(t, err)
				end := limits.AlignedStart(time.Now(), time.Minute).Add(time.Minute)
				if a == window.SlidingWindow {
					end = end.Add(time.Minute)
				}
				require.True(t, w.ExpiresAt.Equal(end), "%v: %v, %v", a, w.ExpiresAt, end)
				require.Equal(t, time.Until(end), w.Left)
			}
			for range 500 {
				hit("k")
				time.Sleep(370 * time.Millisecond)
			}
			hit("k")
			b.clock.setBack(30 * time.Second)
			time.Sleep(time.Second)
			hit("another")
		})
	}
}

// setBack makes the reference what it would be if the wall clock had been set back.
func (c *clock) setBack(d time.Duration) {
	ref := c.reference.Load()
	c.reference.Store(c.newReference(ref.time.Add(-d), ref.nanos, ref.ahead-int64(d)))
}

func TestWallClockIsReadOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		end := time.Now().Add(time.Hour)
		hit := func() time.Time {
			w, err := b.Hit(t.Context(), "k", LimitOf(window.FixedWindow, time.Hour, 10), 1)
			require.NoError(t, err)
			require.Equal(t, time.Until(end), w.Left)
			return w.ExpiresAt
		}
		require.Equal(t, end, hit())
		b.clock.setBack(time.Minute)
		time.Sleep(time.Second - 1)
		require.Equal(t, end.Add(-time.Minute), hit())
		time.Sleep(time.Nanosecond)
		require.Equal(t, end, hit())
	})
}
