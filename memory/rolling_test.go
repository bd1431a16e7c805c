package memory_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/race"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var rolling = []window.Algorithm{window.TokenBucket, window.SlidingWindow, window.SlidingLog}

// A RateLimit has a faster way for most takes. So the same calls are made on two backends, one of which makes
// all takes with the shard's mutex.
func TestFasterTakesAgreeWithTake(t *testing.T) {
	for _, a := range slices.Concat(algorithms, rolling) {
		random := rand.New(rand.NewPCG(1, 2))
		start := time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
		clock := &anyClock{start}
		opts := []memory.Option{memory.WithMaxLog(40), memory.WithMaxKeys(100), memory.WithCleanPeriod(math.MaxInt64)}
		b, other := newBackend(t, clock, opts...), newBackend(t, clock, opts...)
		var id, otherID int64
		taken, takenScale, granted := "0", time.Second, 0
		for range race.Fewer(50_000) {
			clock.Advance(time.Duration(random.Int64N(int64(1) << random.IntN(31))))
			if random.IntN(200) == 0 {
				clock.Advance(-time.Duration(random.Int64N(int64(time.Second))))
			}
			key, scale := fmt.Sprint(random.IntN(4)), time.Second<<random.IntN(3)
			limit, n := []uint64{0, 1, 7, 30, 40}[random.IntN(5)], []uint64{0, 1, 1, 1, 1, 5, 41}[random.IntN(7)]
			switch random.IntN(20) {
			case 0, 1:
				ok, err := b.GiveBack(t.Context(), taken, limitOf(a, takenScale, 10), n, id)
				require.NoError(t, err)
				otherOK, err := other.GiveBack(t.Context(), taken, limitOf(a, takenScale, 10), n, otherID)
				require.NoError(t, err)
				require.Equal(t, otherOK, ok)
			case 2:
				for _, b := range []*memory.Backend{b, other} {
					_, _ = b.Set(t.Context(), key, limitOf(a, scale, 10), n)
				}
			case 3, 4: // a take whose ID is known
				w, err := b.Take(t.Context(), key, limitOf(a, scale, limit), n)
				otherW, otherErr := memory.TakeLocked(other, t.Context(), key, limitOf(a, scale, limit), n)
				require.NoError(t, err)
				require.NoError(t, otherErr)
				require.Equal(t, otherW.ID == 0, w.ID == 0)
				id, otherID, taken, takenScale = w.ID, otherW.ID, key, scale
			default:
				got, err := memory.Decide(b, t.Context(), false, key, limitOf(a, scale, limit), n)
				w, otherErr := memory.TakeLocked(other, t.Context(), key, limitOf(a, scale, limit), n)
				require.NoError(t, err)
				require.NoError(t, otherErr)
				if !w.Refused {
					granted++
				}
				got.ID = w.ID
				require.Equal(t, w, got, "%v: %d of %d in %v", a, n, limit, scale)
			}
			require.Equal(t, other.Len(), b.Len())
		}
		require.Greater(t, granted, race.Fewer(10_000))
	}
}

// A log that is in use gets no more memory than others, either.
func TestLogThatIsHitNeedsRoomForItsTimes(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock, memory.WithMaxKeys(10), memory.WithMaxLog(20), memory.WithMaxTimes(28))
	hit := func(key string) bool {
		w, err := memory.Decide(b, t.Context(), false, key, limitOf(window.SlidingLog, time.Minute, 20), 1)
		require.NoError(t, err)
		require.Equal(t, w.Refused, w.RetryAfter > 0)
		require.True(t, w.Left > 0 || w.Refused)
		require.Less(t, w.Count, uint64(20))
		return !w.Refused
	}
	for range 14 {
		require.True(t, hit("a"))
		clock.Advance(time.Second)
		require.True(t, hit("b"))
	}
	require.False(t, hit("a"))
	require.False(t, hit("c"))
	limits := []window.Take{limitOf(window.SlidingLog, time.Hour, 20).For("a", 0), limitOf(window.SlidingLog, time.Minute, 20).For("b", 1)}
	windows := make([]window.Window, 2)
	granted, err := b.TakeAll(t.Context(), limits, windows)
	require.NoError(t, err)
	require.False(t, granted)
	require.False(t, windows[0].Refused)
	require.True(t, windows[1].Refused)
	require.Equal(t, time.Minute, windows[1].RetryAfter)
	_, err = b.Charge(t.Context(), "a", limitOf(window.SlidingLog, time.Minute, 10), 1)
	require.ErrorIs(t, err, window.ErrFull)
	require.EqualValues(t, 14, caller{t, b, window.SlidingLog}.get("a", time.Minute).Count)
	require.EqualValues(t, 14, caller{t, b, window.SlidingLog}.get("b", time.Minute).Count)
	clock.Advance(52 * time.Second) // seven hits of a are over
	require.True(t, hit("a"))
	require.EqualValues(t, 8, caller{t, b, window.SlidingLog}.get("a", time.Minute).Count)
}

func TestLimitsOverTheLargestAreRefused(t *testing.T) {
	for _, test := range []struct {
		algorithm window.Algorithm
		option    memory.Option
		most      uint64
		text      string
	}{
		{window.SlidingWindow, memory.WithMaxLog(5), 1<<48 - 1, "Max 281474976710656 is out of range: it may be at most 281474976710655 with a sliding-window"},
		{window.SlidingLog, memory.WithMaxLog(0), 10_000, "Max 10001 is out of range: it may be at most 10000 with a sliding-log"},
		{window.SlidingLog, memory.WithMaxLog(50), 50, "Max 51 is out of range: it may be at most 50 with a sliding-log"},
	} {
		b := newBackend(t, backendtest.NewClock(), test.option)
		limiter := throttr.NewRateLimit(b)
		require.NoError(t, limiter.Check(limitOf(test.algorithm, time.Minute, test.most)))
		_, err := limiter.HitN(t.Context(), "k", limitOf(test.algorithm, time.Minute, test.most), test.most)
		require.NoError(t, err)
		for _, err := range []error{
			limiter.Check(limitOf(test.algorithm, time.Minute, test.most+1)),
			func() error {
				_, err := limiter.HitN(t.Context(), "k", limitOf(test.algorithm, time.Minute, test.most+1), 1)
				return err
			}(),
			func() error {
				_, err := limiter.Take(t.Context(), "k", limitOf(test.algorithm, time.Minute, test.most+1), 1)
				return err
			}(),
			func() error {
				_, err := limiter.Peek(t.Context(), "k", limitOf(test.algorithm, time.Minute, test.most+1), 1)
				return err
			}(),
		} {
			require.ErrorIs(t, err, throttr.ErrRange)
			require.ErrorContains(t, err, test.text)
		}
	}
}

func TestMaxTimesBoundsSlidingLogs(t *testing.T) {
	key := func(i int) string { return fmt.Sprint("k", i) }
	for _, o := range []memory.Overflow{memory.Share, memory.Evict} {
		clock := backendtest.NewClock()
		b := newBackend(t, clock, memory.WithMaxKeys(1000), memory.WithMaxLog(70),
			memory.WithMaxTimes(700), memory.WithOverflow(o))
		c := caller{t, b, window.SlidingLog}
		granted := 0
		for i := range 30 {
			w, err := b.Hit(t.Context(), key(i), limitOf(window.SlidingLog, time.Minute, 70), 70)
			require.NoError(t, err)
			if w.Refused {
				require.Equal(t, time.Minute, w.RetryAfter)
				_, err := b.Charge(t.Context(), key(i), limitOf(window.SlidingLog, time.Minute, 10), 70)
				require.ErrorIs(t, err, window.ErrFull)
				require.ErrorContains(t, err, "store is full: at most 700 hits in sliding logs")
				require.Zero(t, c.get(key(i), time.Minute))
				continue
			}
			require.EqualValues(t, 70, c.get(key(i), time.Minute).Count)
			granted++
		}
		if o == memory.Evict {
			require.Equal(t, 30, granted)
		} else {
			require.Equal(t, 10, granted)
			require.Equal(t, 10, b.Len())
		}
		clock.Advance(time.Minute)
		for i := range 10 { // windows that are over make room
			_, err := b.Hit(t.Context(), key(100+i), limitOf(window.SlidingLog, time.Minute, 70), 70)
			require.NoError(t, err)
			clock.Advance(time.Second) // for the next sweep
		}
	}
}

// Made-up keys, of which each is hit once, do not make room by removing a window that is in use. A log that
// gets longer removes another one, even if that has as many hits.
func TestWindowsInUseAreNotEvicted(t *testing.T) {
	for _, a := range rolling {
		clock := backendtest.NewClock()
		b := newBackend(t, clock, memory.WithMaxKeys(100), memory.WithMaxLog(50), memory.WithMaxTimes(700), memory.WithOverflow(memory.Evict))
		for i := range 10_000 {
			if i%500 == 0 {
				w, err := b.Take(t.Context(), "in use", limitOf(a, time.Hour, 50), 2)
				require.NoError(t, err)
				require.False(t, w.Refused)
				require.EqualValues(t, 2*(i/500+1), w.Count, "%v", a)
			}
			w, err := b.Hit(t.Context(), fmt.Sprint("made up ", i), limitOf(a, time.Hour, 50), 1)
			require.NoError(t, err)
			require.EqualValues(t, 1, w.Count)
		}
		w, err := b.Peek(t.Context(), "in use", limitOf(a, time.Hour, 50), 0)
		require.NoError(t, err)
		require.EqualValues(t, 40, w.Count)
	}
	for range 20 {
		b := newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(10), memory.WithMaxLog(20),
			memory.WithMaxTimes(28), memory.WithOverflow(memory.Evict))
		c := caller{t, b, window.SlidingLog}
		for _, key := range []string{"a", "b"} {
			_, err := b.Take(t.Context(), key, limitOf(window.SlidingLog, time.Hour, 20), 14)
			require.NoError(t, err)
		}
		for range 6 {
			w, err := b.Take(t.Context(), "a", limitOf(window.SlidingLog, time.Hour, 20), 1)
			require.NoError(t, err)
			require.False(t, w.Refused)
		}
		require.EqualValues(t, 20, c.get("a", time.Hour).Count)
		require.Zero(t, c.get("b", time.Hour))
	}
}

// One key can always have the largest limit, whatever the bound.
func TestALogOfTheLargestLimitFits(t *testing.T) {
	for _, o := range []memory.Overflow{memory.Share, memory.Evict} {
		clock := backendtest.NewClock()
		b := newBackend(t, clock, memory.WithMaxTimes(1), memory.WithOverflow(o))
		for range 20_000 {
			w, err := b.Hit(t.Context(), "k", limitOf(window.SlidingLog, time.Second, 10_000), 3)
			require.NoError(t, err)
			require.False(t, w.Refused)
			clock.Advance(310 * time.Microsecond)
		}
		require.Greater(t, caller{t, b, window.SlidingLog}.get("k", time.Second).Count, uint64(9000))
	}
}

// If there is no room for one of several windows, nothing is taken from the others.
func TestTakesThatDoNotFitTheMemoryTakeNothing(t *testing.T) {
	for _, a := range slices.Concat(algorithms, rolling) {
		b := newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(2))
		c := caller{t, b, a}
		c.hit("a", time.Minute)
		c.hit("a", time.Minute)
		limits := takesThatDoNotFit(c)
		before := c.get("a", time.Minute)
		windows := make([]window.Window, len(limits))
		_, err := b.TakeAll(t.Context(), limits, windows)
		require.ErrorIs(t, err, window.ErrFull)
		require.Equal(t, 1, b.Len())
		require.Equal(t, before, c.get("a", time.Minute))
		require.Zero(t, c.get("c", time.Minute))
		granted, err := b.TakeAll(t.Context(), limits[:4], windows[:4])
		require.NoError(t, err)
		require.True(t, granted)
		require.EqualValues(t, 7, windows[0].Count)
		require.EqualValues(t, 7, windows[2].Count)
	}
}

// takesThatDoNotFit returns takes, of which all but the last one fit a memory of two keys, of which one is in use.
func takesThatDoNotFit(c caller) []window.Take {
	c.hit("b", time.Minute)
	for i := range time.Duration(15) {
		c.hit("shared", time.Second+i)
	}
	require.NoError(c, c.Reset(c.Context(), "b", limitOf(c.algorithm, time.Minute, 10)))
	return []window.Take{
		limitOf(c.algorithm, time.Minute, 10).For("a", 4), limitOf(c.algorithm, time.Minute, 10).For("b", 4), limitOf(c.algorithm, time.Minute, 10).For("a", 1),
		limitOf(c.algorithm, time.Minute, 10).For("c", 4), limitOf(c.algorithm, time.Hour, 10).For("d", 4),
	}
}

// Whatever the clock shows, no call panics, and no key is denied for longer than three scales.
func TestRollingAlgorithmsWithAnyClock(t *testing.T) {
	for _, a := range rolling {
		random := rand.New(rand.NewPCG(1, 2))
		now := time.Now()
		b := memory.New(memory.WithClock(func() time.Time { return now }), memory.WithMaxKeys(50), memory.WithCleanPeriod(math.MaxInt64))
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
			if w.Refused && n <= limit && scale <= time.Hour {
				require.LessOrEqual(t, w.RetryAfter, 3*scale)
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
