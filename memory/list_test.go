package memory_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestListTellsTheBurstUnlessItIsTheMax(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	for burst, want := range map[uint64]uint64{0: 0, 4: 4, 10: 0, 20: 20} {
		l := limitOf(window.TokenBucket, time.Minute, 10)
		l.Burst = burst
		_, err := b.Take(t.Context(), "k", l, 1)
		require.NoError(t, err)
		for listed, err := range b.List(t.Context(), "k") {
			require.NoError(t, err)
			require.Equal(t, []uint64{10, want}, []uint64{listed.Limit.Max, listed.Limit.Burst})
		}
	}
}

func TestListReturnsWhatIsCountedNow(t *testing.T) {
	clock := backendtest.NewClock()
	b := newBackend(t, clock)
	long := strings.Repeat("k", 129)
	limits := map[string]window.Limit{}
	for _, a := range everyAlgorithm {
		l := limitOf(a, time.Minute, 10)
		l.Name = a.String()
		if a == window.TokenBucket {
			l.Burst = 20
		}
		limits[l.Name] = l
		for _, key := range []string{"k", "other", long} {
			_, err := b.Take(t.Context(), key, l, 3)
			require.NoError(t, err)
		}
		_, err := b.Take(t.Context(), "over", limitOf(a, time.Second, 10), 1)
		require.NoError(t, err)
	}
	clock.Advance(2 * time.Second)
	for _, keys := range [][]string{{"k"}, {long}, {"none", "k", "other"}, nil} {
		seen := map[string]int{}
		for l, err := range b.List(t.Context(), keys...) {
			require.NoError(t, err)
			seen[l.Key]++
			key := l.Key
			if l.Digest {
				key = long
				w, err := b.Peek(t.Context(), l.Key, l.Limit, 0)
				require.NoError(t, err)
				require.Zero(t, w.Count, "a digest is no key")
			}
			require.Equal(t, l.Key != "k" && l.Key != "other", l.Digest)
			require.Equal(t, limits[l.Limit.Name], l.Limit)
			want, err := b.Peek(t.Context(), key, l.Limit, 0)
			require.NoError(t, err)
			require.Equal(t, want, l.Window)
		}
		require.Len(t, seen, map[int]int{1: 1, 3: 2, 0: 3}[len(keys)], "%v", keys)
		for key, n := range seen {
			require.Equal(t, len(everyAlgorithm), n, key)
		}
	}
}

// The loop takes of the keys that it lists, removes them, and adds others. What is there all the time is seen.
func TestTheLoopOfListMayCallTheBackend(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l := limitOf(window.FixedWindow, time.Minute, 10)
	const n = 5000
	for i := range n {
		_, err := b.Take(t.Context(), fmt.Sprint(i), l, 1)
		require.NoError(t, err)
	}
	seen, removed := map[string]bool{}, map[string]bool{}
	for c, err := range b.List(t.Context()) {
		require.NoError(t, err)
		seen[c.Key] = true
		_, err := b.Take(t.Context(), c.Key, l, 1)
		require.NoError(t, err)
		if other := fmt.Sprint(len(seen) * 7 % n); len(seen)%3 == 0 {
			removed[other] = true
			require.NoError(t, b.Reset(t.Context(), other, l))
		}
	}
	for i := range n {
		key := fmt.Sprint(i)
		require.True(t, seen[key] || removed[key], key)
	}
	ended := 0
	for range b.List(t.Context()) {
		ended++
		break
	}
	require.Equal(t, 1, ended)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	listed := 0
	for _, err := range b.List(ctx) {
		last = err
		listed++
		cancel()
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Less(t, listed, 500)
	require.NoError(t, b.Close())
	for _, err := range b.List(t.Context()) {
		require.ErrorIs(t, err, window.ErrClosed)
	}
}

// What a bound costs depends on what is used.
func TestBoundsMayBeAsLargeAsPossible(t *testing.T) {
	before := heap()
	for _, opts := range [][]memory.Option{
		{memory.WithMaxKeys(math.MaxInt)}, {memory.WithMaxKeys(1)}, {memory.WithMaxKeys(math.MaxInt), memory.WithMaxTimes(math.MaxInt), memory.WithMaxLog(1<<29 - 1)},
		{memory.WithMaxTimes(1), memory.WithMaxLog(1)}, {memory.WithCleanPeriod(math.MaxInt64), memory.WithKeyOlderThan(math.MaxInt64)}, {memory.WithCleanPeriod(1)},
	} {
		b := newBackend(t, backendtest.NewClock(), opts...)
		for _, a := range everyAlgorithm {
			for key := range 3 {
				w, err := b.Take(t.Context(), fmt.Sprint(key), limitOf(a, time.Minute, 1), 1)
				require.NoError(t, err)
				require.LessOrEqual(t, w.Count, uint64(1))
			}
		}
		require.Less(t, heap(), before+4_000_000)
	}
}
