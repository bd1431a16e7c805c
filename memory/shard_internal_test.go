package memory

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// A call looks at few records, also of a key with many limits.
func TestTheLimitsOfAKeyAreInManyCells(t *testing.T) {
	b := New()
	defer b.Close()
	for i := range 1000 {
		l := LimitOf(window.FixedWindow, time.Hour, 1)
		l.Name = fmt.Sprint(i)
		_, err := b.Take(t.Context(), "k", l, 1)
		require.NoError(t, err)
	}
	_, s := b.locate("k", &window.Limit{})
	for _, r := range s.cells {
		inCell := 0
		for ; r != nil; r = r.next {
			inCell++
		}
		require.Less(t, inCell, 50)
	}
}

// Aligned windows follow a wall clock that is set, within a second.
func TestTheWallClockIsReadOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		was := *c.last.Load() // as if the clock had been set since
		was.Day = was.Day.Add(time.Hour)
		c.last.Store(&was)
		time.Sleep(time.Second - 1)
		at := c.now()
		require.True(t, at.Day(0).Equal(time.Now().Add(time.Hour)))
		time.Sleep(time.Nanosecond)
		at = c.now()
		require.True(t, at.Day(0).Equal(time.Now()))
		time.Sleep(time.Second / 2)
		require.Same(t, at.Last, c.now().Last)
	})
}

// TestTimesOfDayAfterAReading: a clock goes on between two readings for one call, the second one for a time of day.
func TestTimesOfDayAfterAReading(t *testing.T) {
	const later = 200 * 365 * 24 * time.Hour
	shown := []time.Duration{0, 0, later, later + time.Minute} // two to make the clock, and two for a call
	c := newClock(func() time.Time {
		now := time.Unix(0, 0).Add(shown[0])
		shown = shown[1:]
		return now
	})
	at := c.now()
	require.True(t, at.Day(0).Equal(time.Unix(60, 0).Add(later)), at.Day(0))
	require.Equal(t, later+time.Minute, time.Duration(at.Now))
}

// TestAReadingIsForTimesBeforeIt: a clock that goes back makes a call allocate nothing.
func TestAReadingIsForTimesBeforeIt(t *testing.T) {
	shown := time.Unix(0, 0)
	c := newClock(func() time.Time {
		shown = shown.Add(-time.Hour)
		return shown
	})
	read := c.last.Load()
	at := c.now()
	require.Same(t, read, at.Last)
	require.True(t, at.Day(0).Equal(shown), at.Day(0))
}

// Times that are over need no room, nor does a log that is replaced: when no log can grow, a log that has used little of
// its own counts as any other.
func TestTimesThatAreOverNeedNoRoom(t *testing.T) {
	l := LimitOf(window.SlidingLog, time.Minute, 32)
	calls := map[string]func(ctx context.Context, b *Backend) (window.Window, error){
		"hit":    func(ctx context.Context, b *Backend) (window.Window, error) { return b.Hit(ctx, "k", l, 1) },
		"take":   func(ctx context.Context, b *Backend) (window.Window, error) { return b.Take(ctx, "k", l, 1) },
		"peek":   func(ctx context.Context, b *Backend) (window.Window, error) { return b.Peek(ctx, "k", l, 1) },
		"charge": func(ctx context.Context, b *Backend) (window.Window, error) { return b.Charge(ctx, "k", l, 1) },
		"set":    func(ctx context.Context, b *Backend) (window.Window, error) { return b.Set(ctx, "k", l, 1) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			clock := backendtest.NewClock()
			b := New(WithMaxKeys(8), WithMaxLog(32), WithClock(clock.Now), WithCleanPeriod(time.Hour))
			defer b.Close()
			hit := func(key string, scale time.Duration) (granted bool) {
				w, err := b.Hit(t.Context(), key, LimitOf(window.SlidingLog, scale, 32), 1)
				require.NoError(t, err)
				return !w.Refused
			}
			for range 3 {
				require.True(t, hit("k", time.Minute))
			}
			clock.Advance(50 * time.Second)
			require.True(t, hit("k", time.Minute))
			for i := range 7 { // others use up what is left
				for hit(fmt.Sprint(i), time.Hour) {
					clock.Advance(1)
				}
			}
			require.Equal(t, b.shards[0].maxTimes, b.shards[0].times)
			if name != "set" {
				clock.Advance(10 * time.Second)
			}
			w, err := call(t.Context(), b)
			require.NoError(t, err)
			require.False(t, w.Refused)
			require.LessOrEqual(t, b.shards[0].times, b.shards[0].maxTimes)
		})
	}
}

// The logs of a TakeAll grow within the bound together.
func TestTakesTogetherKeepTheBoundOfTimes(t *testing.T) {
	clock := backendtest.NewClock()
	b := New(WithMaxKeys(64), WithMaxLog(256), WithClock(clock.Now), WithCleanPeriod(time.Hour))
	defer b.Close()
	var takes []window.Take
	for i := range 6 {
		takes = append(takes, LimitOf(window.SlidingLog, time.Hour, 256).For(fmt.Sprint(i), 1))
	}
	windows := make([]window.Window, len(takes))
	granted := true
	for n := uint64(1); granted; n++ {
		var err error
		granted, err = b.TakeAll(t.Context(), takes, windows)
		require.NoError(t, err)
		for i := range windows {
			require.True(t, !granted || windows[i].Count == n, "a take was granted and not counted")
		}
		require.LessOrEqual(t, b.shards[0].times, b.shards[0].maxTimes)
		clock.Advance(1)
	}
	require.Greater(t, b.shards[0].times, b.shards[0].maxTimes/2)
	clock.Advance(50 * time.Minute)
	b.Clean()
	times := 0
	b.shards[0].visit(0, func(r *row) { times += r.Log.Times() })
	require.Equal(t, times, b.shards[0].times)
}

// What adds nothing removes nothing: a window that is over is kept until a new key needs the room.
func TestACallThatAddsNothingKeepsWhatIsOver(t *testing.T) {
	l := LimitOf(window.FixedWindow, time.Minute, 5)
	clock := backendtest.NewClock()
	b := New(WithMaxKeys(1), WithClock(clock.Now), WithCleanPeriod(24*time.Hour), WithKeyOlderThan(time.Hour))
	defer b.Close()
	_, err := b.Hit(t.Context(), "k", l, 1)
	require.NoError(t, err)
	clock.Advance(2 * time.Minute)
	for _, n := range []uint64{0, 6} {
		_, err = b.Peek(t.Context(), "other", l, n)
		require.NoError(t, err)
		require.Equal(t, 1, b.Len())
		_, err = b.Take(t.Context(), "other", l, n)
		require.NoError(t, err)
		require.Equal(t, 1, b.Len())
	}
	granted, err := b.TakeAll(t.Context(), []window.Take{l.For("other", 1), l.For("another", 6)}, make([]window.Window, 2))
	require.NoError(t, err)
	require.False(t, granted)
	require.Equal(t, 1, b.Len())
	w, err := b.Take(t.Context(), "other", l, 1)
	require.NoError(t, err)
	require.False(t, w.Refused)
	require.Equal(t, 1, b.Len())
}
