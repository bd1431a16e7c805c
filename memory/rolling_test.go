package memory_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestLogsHaveALargestMax(t *testing.T) {
	c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxLog(10)), window.SlidingLog}
	_, err := c.Take(t.Context(), "k", limitOf(window.SlidingLog, time.Minute, 11), 1)
	require.ErrorContains(t, err, "Max 11 is out of range: it may be at most 10 with a sliding-log")
	l := limitOf(window.SlidingLog, time.Minute, 10)
	for _, step := range []struct{ n, want uint64 }{{8, 8}, {8, 10}, {1 << 62, 10}} {
		require.Equal(t, step.want, c.of(c.Charge(t.Context(), "k", l, step.n)).Count)
	}
	require.EqualValues(t, 10, c.set("k", time.Minute, 11).Count)
}

// Whatever the clock shows, no call panics, and no key is denied for longer than three scales, or what it owes.
func TestAlgorithmsWithAnyClock(t *testing.T) {
	for _, a := range everyAlgorithm {
		random := rand.New(rand.NewPCG(1, 2))
		now := time.Now()
		b := memory.New(memory.WithClock(func() time.Time { return now }), memory.WithMaxKeys(100), memory.WithCleanPeriod(math.MaxInt64))
		scales := []time.Duration{window.MinScale, time.Second, time.Hour, math.MaxInt64 / 4, window.MaxScale}
		for range 20_000 {
			ctx, key, scale := t.Context(), fmt.Sprint(random.IntN(20)), scales[random.IntN(len(scales))]
			limit, n := limitOf(a, scale, random.Uint64N(20)), random.Uint64N(10)
			w, err := b.Hit(ctx, key, limit, n)
			require.NoError(t, err)
			ten := limitOf(a, scale, 10)
			_, err = b.GiveBack(ctx, key, ten, n, w.ID)
			require.NoError(t, err)
			_, err = b.Peek(ctx, key, limit, n)
			require.NoError(t, err)
			if _, err = b.Charge(ctx, key, ten, n); err == nil && random.IntN(10) == 0 {
				_, err = b.Set(ctx, key, ten, n)
			}
			if err != nil {
				require.ErrorIs(t, err, window.ErrFull)
			}
			if w.Refused && n <= limit.Max && limit.Max > 0 && scale <= time.Hour {
				most := 3 * scale
				if a == window.TokenBucket {
					most = 40 * scale // Charge has made it lack up to 38 tokens, of which one comes back in a scale
				}
				require.LessOrEqual(t, w.RetryAfter, most)
			}
			switch random.IntN(12) {
			case 0:
				now = time.Unix(random.Int64()>>random.IntN(40), 0)
			case 1:
				now = now.Add(-scale)
			case 2:
				now = now.Add(scale)
			case 3:
				b.Clean()
			default:
				now = now.Add(time.Duration(random.Int64N(int64(time.Second))))
			}
		}
		require.NoError(t, b.Close())
	}
}

// There is room for 1024 times. What does not fit is refused until the log is over, which no policy allows, and takes
// nothing. When others are over, they make room.
func TestSlidingLogsAreBounded(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxKeys(64), memory.WithMaxLog(256), memory.WithCleanPeriod(time.Hour))
	c, ctx, l := caller{t, b, window.SlidingLog}, t.Context(), limitOf(window.SlidingLog, time.Minute, 256)
	fill := func(key string, n int) (granted int) {
		for range n {
			if !c.of(b.Take(ctx, key, l, 1)).Refused {
				granted++
			}
			clock.Advance(1)
		}
		return granted
	}
	for i, n := range []int{2, 256, 256, 256, 128, 64, 32, 16, 8, 4, 2} {
		require.Equal(t, n, fill(fmt.Sprint("k", i), n))
	}
	full := window.Window{Count: 256, Refused: true, RetryAfter: time.Minute - 1023}
	require.Equal(t, full, c.of(b.Take(ctx, "k0", l, 1)), "until its last take, 1023 ns ago, is over")
	full.RetryAfter = time.Hour
	require.Equal(t, full, c.of(b.Peek(ctx, "another", l, 1)))
	_, err := b.Charge(ctx, "another", l, 1)
	require.ErrorIs(t, err, window.ErrFull)
	fixed := limitOf(window.FixedWindow, time.Minute, 5)
	granted, windows := c.takeAll(fixed.For("another", 1), l.For("another", 1))
	require.False(t, granted)
	require.Equal(t, []bool{false, true}, []bool{windows[0].Refused, windows[1].Refused})
	require.Zero(t, c.of(b.Peek(ctx, "another", fixed, 0)))
	require.EqualValues(t, 256, c.get("k3", time.Minute).Count)
	require.Equal(t, 11, b.Len(), "what is denied leaves nothing")

	clock.Advance(time.Minute)
	require.Equal(t, 256, fill("another", 256))
	require.Equal(t, 1, b.Len())
}

// One key can always have the largest limit, whatever the bound.
func TestALogOfTheLargestLimitFits(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(2)), window.SlidingLog}
	for range 20_000 {
		require.False(t, c.of(c.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1)).Refused)
		clock.Advance(103 * time.Microsecond)
	}
	require.Greater(t, c.get("k", time.Second).Count, uint64(9000))

	// What is given back needs no room.
	l := limitOf(window.SlidingLog, time.Hour, 10_000)
	last := int64(0)
	for i := range 100_000 {
		w := c.of(c.Take(t.Context(), "given back", l, 1))
		require.False(t, w.Refused, "take %d", i)
		if i >= 9_999 {
			given, err := c.GiveBack(t.Context(), "given back", l, 1, last)
			require.NoError(t, err)
			require.True(t, given)
		}
		last = w.ID
		clock.Advance(1)
	}
}
