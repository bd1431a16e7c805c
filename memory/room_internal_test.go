package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

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
