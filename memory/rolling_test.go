package memory_test

import (
	"errors"
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
	b := newBackend(t, backendtest.NewClock(), memory.WithMaxLog(50))
	_, err := b.Take(t.Context(), "k", logLimit(50), 50)
	require.NoError(t, err)
	_, err = b.Take(t.Context(), "k", logLimit(51), 1)
	require.ErrorContains(t, err, "Max 51 is out of range: it may be at most 50 with a sliding-log")
}

func TestChargesOfALogCountUpToTheLargestLimit(t *testing.T) {
	b := newBackend(t, backendtest.NewClock(), memory.WithMaxLog(10))
	l := limitOf(window.SlidingLog, time.Minute, 5)
	for _, step := range []struct{ n, want uint64 }{{8, 8}, {8, 10}, {1 << 62, 10}} {
		w, err := b.Charge(t.Context(), "k", l, step.n)
		require.NoError(t, err)
		require.Equal(t, step.want, w.Count)
	}
	w, err := b.Set(t.Context(), "k", l, 11)
	require.NoError(t, err)
	require.EqualValues(t, 10, w.Count)
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
			limit, n := random.Uint64N(20), random.Uint64N(10)
			w, err := b.Hit(ctx, key, limitOf(a, scale, limit), n)
			for _, err := range []error{
				err,
				func() error { _, err := b.Charge(ctx, key, limitOf(a, scale, 10), n); return err }(),
				func() error { _, err := b.GiveBack(ctx, key, limitOf(a, scale, 10), n, w.ID); return err }(),
				func() error { _, err := b.Peek(ctx, key, limitOf(a, scale, limit), n); return err }(),
			} {
				if err != nil {
					require.ErrorIs(t, err, window.ErrFull)
				}
			}
			if random.IntN(10) == 0 {
				_, err := b.Set(ctx, key, limitOf(a, scale, 10), n)
				require.True(t, err == nil || errors.Is(err, window.ErrFull))
			}
			if w.Refused && n <= limit && limit > 0 && scale <= time.Hour {
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

// logLimit is one of a sliding log.
func logLimit(most uint64) window.Limit { return limitOf(window.SlidingLog, time.Minute, most) }

// The times of all logs are bounded. What does not fit is refused, which no policy allows, and takes nothing. When
// others are over, they make room.
func TestMaxTimesBoundsSlidingLogs(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxKeys(100), memory.WithMaxLog(16), memory.WithMaxTimes(64))
	full := func(key string) (granted int) {
		for range 16 {
			w, err := b.Take(t.Context(), key, logLimit(16), 1)
			require.NoError(t, err)
			if w.Refused {
				require.LessOrEqual(t, w.RetryAfter, time.Minute)
				require.Positive(t, w.RetryAfter)
				continue
			}
			granted++
			clock.Advance(time.Millisecond)
		}
		return granted
	}
	for i := range 4 {
		require.Equal(t, 16, full(fmt.Sprint("k", i)))
	}
	require.Zero(t, full("another"))
	w, err := b.Peek(t.Context(), "another", logLimit(16), 1)
	require.NoError(t, err)
	require.True(t, w.Refused)
	_, err = b.Charge(t.Context(), "another", logLimit(16), 1)
	require.ErrorIs(t, err, window.ErrFull)
	require.ErrorContains(t, err, "store is full: at most 64 hits in sliding logs")
	takes := []window.Take{logLimit(16).For("another", 1), limitOf(window.FixedWindow, time.Minute, 5).For("another", 1)}
	windows := make([]window.Window, 2)
	granted, err := b.TakeAll(t.Context(), []window.Take{takes[1], takes[0]}, windows)
	require.NoError(t, err)
	require.False(t, granted)
	require.Equal(t, []bool{false, true}, []bool{windows[0].Refused, windows[1].Refused})
	require.Zero(t, caller{t, b, window.FixedWindow}.get("another", time.Minute))
	require.EqualValues(t, 16, caller{t, b, window.SlidingLog}.get("k3", time.Minute).Count)

	require.Equal(t, 4, b.Len(), "what is denied leaves nothing")
	clock.Advance(time.Minute)
	require.Equal(t, 16, full("another"))
	require.Equal(t, 1, b.Len())
}

// A log that has no room to grow has room when it is over, or before.
func TestMaxTimesDenyALogUntilItIsOver(t *testing.T) {
	clock := backendtest.NewClock()
	c := caller{t, newBackend(t, clock, memory.WithMaxKeys(100), memory.WithMaxLog(16), memory.WithMaxTimes(64),
		memory.WithCleanPeriod(time.Hour)), window.SlidingLog}
	c.hit("k", time.Minute)
	clock.Advance(time.Second)
	c.hit("k", time.Minute)
	require.Equal(t, 31, c.hitNewKeys(31, time.Minute))
	clock.Advance(time.Second)
	require.Equal(t, window.Window{Count: 10, Refused: true, RetryAfter: 59 * time.Second}, c.hit("k", time.Minute))
}

// One key can always have the largest limit, whatever the bound.
func TestALogOfTheLargestLimitFits(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxTimes(1))
	for range 20_000 {
		w, err := b.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 1)
		require.NoError(t, err)
		require.False(t, w.Refused)
		clock.Advance(103 * time.Microsecond)
	}
	require.Greater(t, caller{t, b, window.SlidingLog}.get("k", time.Second).Count, uint64(9000))

	// What is given back needs no room, as soon as there is little.
	l := limitOf(window.SlidingLog, time.Hour, 10_000)
	last := int64(0)
	for i := range 100_000 {
		w, err := b.Take(t.Context(), "given back", l, 1)
		require.NoError(t, err)
		require.False(t, w.Refused, "take %d", i)
		if i >= 9_999 {
			given, err := b.GiveBack(t.Context(), "given back", l, 1, last)
			require.NoError(t, err)
			require.True(t, given)
		}
		last = w.ID
		clock.Advance(1)
	}
}
