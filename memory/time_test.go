package memory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// anyClock is a clock that can go back.
type anyClock struct{ now time.Time }

func (c *anyClock) Now() time.Time          { return c.now }
func (c *anyClock) Advance(d time.Duration) { c.now = c.now.Add(d) }

func TestClockMayBeInAnyYear(t *testing.T) {
	for _, now := range []time.Time{
		{},
		time.Date(1, time.March, 1, 0, 0, 0, 1, time.UTC),
		time.Date(1969, time.December, 31, 23, 59, 40, 0, time.UTC),
		time.Unix(0, 0),
		time.Date(2262, time.April, 11, 23, 47, 16, 0, time.UTC),
		time.Date(9999, time.December, 31, 23, 59, 30, 0, time.UTC),
	} {
		for _, a := range algorithms {
			clock := &anyClock{now}
			c := caller{t, newBackend(t, clock), a}
			end := now.Add(time.Minute)
			if a == window.AlignedWindow {
				end = limits.AlignedStart(now, time.Minute).Add(time.Minute)
			}
			w := c.hit("k", time.Minute)
			require.Equal(t, window.Window{
				Count: 1, ExpiresAt: end, Left: end.Sub(now), ID: w.ID,
			}, w, "%v, %v", now, a)
			clock.now = end.Add(-1)
			require.EqualValues(t, 2, c.hit("k", time.Minute).Count)
			clock.now = end
			require.EqualValues(t, 1, c.hit("k", time.Minute).Count)
		}
	}
}

// A clock may begin at the zero time, and be set later, and back.
func TestAClockThatJumpsByCenturies(t *testing.T) {
	for _, a := range everyAlgorithm {
		clock := &anyClock{}
		b := newBackend(t, clock)
		take := func(n uint64) window.Window {
			w, err := b.Take(t.Context(), "k", limitOf(a, time.Hour, 5), n)
			require.NoError(t, err)
			return w
		}
		require.False(t, take(5).Refused)
		clock.now = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
		require.False(t, take(5).Refused, "%v", a)
		clock.now = time.Time{}
		w := take(1)
		require.True(t, w.Refused, "%v", a)
		require.LessOrEqual(t, w.RetryAfter, 2*time.Hour)
		clock.Advance(w.RetryAfter)
		require.False(t, take(1).Refused, "%v", a)
	}
}

func TestScalesUpToTheLargest(t *testing.T) {
	for _, a := range algorithms {
		for _, scale := range []time.Duration{window.MinScale, window.MaxScale - 1, window.MaxScale} {
			clock := &anyClock{time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)}
			c := caller{t, newBackend(t, clock), a}
			for i := range 5 {
				w := c.hit("k", scale)
				require.Positive(t, w.Left, "%v, %v", a, scale)
				require.LessOrEqual(t, w.Left, scale)
				require.Equal(t, w.Left, w.ExpiresAt.Sub(clock.now))
				if scale > window.MinScale {
					require.EqualValues(t, i+1, w.Count)
				}
				clock.Advance(time.Hour)
			}
			clock.Advance(-100 * time.Hour)
			require.Positive(t, c.hit("k", scale).Left, "%v, %v", a, scale)
		}
	}
}

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

func TestAlignedWindowsEndTogether(t *testing.T) {
	clock := &anyClock{time.Date(2030, time.January, 1, 10, 0, 59, 999_999_999, time.UTC)}
	c := caller{t, newBackend(t, clock), window.AlignedWindow}
	require.EqualValues(t, 1, c.hit("a", time.Minute).Left)
	clock.Advance(1)
	require.Zero(t, c.get("a", time.Minute))
	w := c.hit("b", time.Minute)
	require.Equal(t, time.Minute, w.Left)
	clock.Advance(30 * time.Second)
	require.Equal(t, w.ExpiresAt, c.hit("a", time.Minute).ExpiresAt)
}
