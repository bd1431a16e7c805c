package memory_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
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

// A few takes are made in another way than many, and undone if one is refused.
func TestAFewTakesDecideAsManyDo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, a := range algorithms {
		clock := backendtest.NewClock()
		b, other := newBackend(t, clock), newBackend(t, clock)
		keys := []string{"a", "b", "c", "d", "e", strings.Repeat("long", 50)}
		outcomes := map[bool]int{}
		for range 3000 {
			takes := make([]window.Take, random.IntN(6))
			for i := range takes {
				takes[i] = limitOf(a, time.Second, 4+random.Uint64N(9)).For(keys[random.IntN(len(keys))], random.Uint64N(3))
			}
			many := slices.Clone(takes)
			for i := range 5 {
				many = append(many, limitOf(a, time.Minute, 1).For(keys[i], 0))
			}
			want, got := make([]window.Window, len(many)), make([]window.Window, len(takes))
			granted, err := other.TakeAll(t.Context(), many, want)
			require.NoError(t, err)
			ok, err := b.TakeAll(t.Context(), takes, got)
			require.NoError(t, err)
			require.Equal(t, granted, ok)
			for i := range got {
				got[i].ID = want[i].ID
			}
			require.Equal(t, want[:len(takes)], got)
			for _, key := range keys {
				want, err := other.Peek(t.Context(), key, limitOf(a, time.Second, 10), 0)
				require.NoError(t, err)
				got, err := b.Peek(t.Context(), key, limitOf(a, time.Second, 10), 0)
				require.NoError(t, err)
				got.ID = want.ID
				require.Equal(t, want, got)
			}
			outcomes[ok]++
			clock.Advance(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		require.Greater(t, outcomes[true], 300)
		require.Greater(t, outcomes[false], 300)
	}
}

// The windows of takes that are granted are described as they were then, however long the call takes.
func TestTakesAreDescribedAsOfTheirTime(t *testing.T) {
	for _, a := range algorithms {
		now := time.Unix(1_000_000_000, 0)
		b := memory.New(memory.WithCleanPeriod(math.MaxInt64), memory.WithClock(func() time.Time {
			now = now.Add(70 * time.Millisecond) // as if the process stopped before each reading
			return now
		}))
		takes, windows := []window.Take{limitOf(a, 100*time.Millisecond, 9).For("a", 2), limitOf(a, 100*time.Millisecond, 9).For("b", 3)}, make([]window.Window, 2)
		granted, err := b.TakeAll(t.Context(), takes, windows)
		require.NoError(t, err)
		require.True(t, granted)
		for i, w := range windows {
			require.Equal(t, takes[i].N, w.Count, "%v", a)
			require.Positive(t, w.Left)
		}
		require.NoError(t, b.Close())
	}
}
