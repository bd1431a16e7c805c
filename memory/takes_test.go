package memory_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// A take of a token bucket is rounded up. If each of several was, they would take more than their sum.
func TestTakesOfOneBucketAreOneTakeOfTheirSum(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, limit := range []uint64{1<<31 + 11, 1<<33 + 7, 3, 1000, math.MaxInt64 - 1} {
		for range 100 {
			b := newBackend(t, backendtest.NewClock())
			n := random.Uint64N(limit)
			limits := []window.Take{
				limitOf(window.TokenBucket, time.Minute, limit).For("k", n), limitOf(window.TokenBucket, time.Minute, limit).For("k", limit-n),
			}
			windows := make([]window.Window, 2)
			granted, err := b.TakeAll(t.Context(), limits, windows)
			require.NoError(t, err)
			require.True(t, granted)
			require.Equal(t, windows[0], windows[1])
			for i, w := range windows {
				require.False(t, w.Refused)
				require.Equal(t, limit, w.Count)
				_, err := b.GiveBack(t.Context(), "k", limitOf(window.TokenBucket, time.Minute, 10), limits[i].N, w.ID)
				require.NoError(t, err)
			}
		}
	}
}

// The records of windows move while others are opened.
func TestTakesOfManyWindowsAtOnce(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	limits := make([]window.Take, 5000)
	for i := range limits {
		limits[i] = limitOf(window.FixedWindow, time.Minute, 2).For(string(rune('a'+i%50))+string(rune('a'+i/50)), 1)
	}
	windows := make([]window.Window, len(limits))
	for round := range uint64(3) {
		granted, err := b.TakeAll(t.Context(), limits, windows)
		require.NoError(t, err)
		require.Equal(t, round < 2, granted)
		for i := range windows {
			require.Equal(t, min(round+1, 2), windows[i].Count)
		}
	}
}

func TestCountThatWasTooLargeIsNotGivenBack(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	c := caller{t, b, window.FixedWindow}
	w := c.set("k", time.Minute, math.MaxInt64-1)
	_, err := b.Charge(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 10), 5)
	require.NoError(t, err)
	ok, err := b.GiveBack(t.Context(), "k", limitOf(window.FixedWindow, time.Minute, 10), 5, w.ID)
	require.NoError(t, err)
	require.False(t, ok)
	require.EqualValues(t, uint64(math.MaxInt64), c.get("k", time.Minute).Count)
}

// Keys that share a count are described as it is after all takes. None of those that are granted is refused.
func TestTakesThatShareACountUnderAnotherMax(t *testing.T) {
	for _, a := range everyAlgorithm {
		c := fillUp(t, backendtest.NewClock(), 1, a)
		takes := []window.Take{limitOf(a, time.Minute, 1).For("b", 1), limitOf(a, time.Minute, 10).For("c", 3)}
		windows := make([]window.Window, 2)
		granted, err := c.TakeAll(t.Context(), takes, windows)
		require.NoError(t, err)
		require.True(t, granted)
		for _, w := range windows {
			require.EqualValues(t, 4, w.Count, "%v", a)
			require.False(t, w.Refused)
			require.Zero(t, w.RetryAfter)
		}
	}
}
