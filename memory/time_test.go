package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// anyClock is a clock that can go back.
type anyClock struct{ now time.Time }

func (c *anyClock) Now() time.Time          { return c.now }
func (c *anyClock) Advance(d time.Duration) { c.now = c.now.Add(d) }

func TestWindowsSurviveAClockThatGoesBack(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) {
			clock := &anyClock{time.Date(2030, time.January, 1, 10, 0, 0, 0, time.UTC)}
			c := caller{t, newBackend(t, clock), a}
			c.set("k", time.Minute, 10)
			end := clock.now.Add(time.Minute)

			clock.Advance(-time.Millisecond)
			w := c.hit("k", time.Minute)
			require.EqualValues(t, 11, w.Count, "no other window opens if the clock goes back")
			require.Equal(t, end, w.ExpiresAt)
			require.Equal(t, time.Minute+time.Millisecond, w.Left)
			require.Zero(t, c.Clean())

			clock.now = end.Add(-2 * time.Minute)
			w = c.hit("k", time.Minute)
			require.EqualValues(t, 12, w.Count, "a window that opens now would overlap it")
			require.Equal(t, 2*time.Minute, w.Left)
			clock.Advance(-1)
			w = c.hit("k", time.Minute)
			require.EqualValues(t, 13, w.Count, "it starts now, with what it has counted")
			require.LessOrEqual(t, w.Left, time.Minute)
			clock.Advance(w.Left)
			require.EqualValues(t, 1, c.hit("k", time.Minute).Count)

			c.set("ahead", time.Minute, 5)
			clock.Advance(-time.Hour)
			require.Zero(t, c.Clean())
			clock.Advance(time.Minute)
			require.Equal(t, 2, c.Clean(), "Clean has noticed that, too")
		})
	}
}

// What is denied changes nothing, but it notices that the clock has gone back, so that it is not denied until that is
// as late as before.
func TestDenialsNoticeAClockThatGoesBack(t *testing.T) {
	for _, a := range algorithms {
		for _, years := range []time.Duration{1, 30, 140} {
			clock := &anyClock{time.Date(2170, time.January, 1, 10, 0, 0, 0, time.UTC)}
			c := caller{t, newBackend(t, clock), a}
			takes := []window.Take{limitOf(a, time.Minute, 3).For("k", 3), limitOf(a, time.Hour, 3).For("other", 1)}
			windows := make([]window.Window, 2)
			c.set("k", time.Minute, 3)
			clock.Advance(-years * 365 * 24 * time.Hour)
			granted := false
			for steps := 0; !granted; steps++ {
				require.LessOrEqual(t, steps, 4, "%v, after %d years", a, years)
				var err error
				granted, err = c.TakeAll(t.Context(), takes, windows)
				require.NoError(t, err)
				clock.Advance(min(windows[0].RetryAfter, 30*time.Second))
			}
		}
	}
}

func TestAlignedWindowsFollowTheWallClock(t *testing.T) {
	b := memory.New()
	defer b.Close()
	w := caller{t, b, window.AlignedWindow}.hit("k", time.Hour)
	require.Equal(t, w.ExpiresAt.UTC().Truncate(time.Hour), w.ExpiresAt.UTC())
	require.WithinDuration(t, time.Now(), w.ExpiresAt, time.Hour)
}
