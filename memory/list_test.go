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
		caller{t, b, l.Algorithm}.of(b.Take(t.Context(), "k", l, 1))
		for listed, err := range b.List(t.Context(), "k") {
			require.NoError(t, err)
			require.Equal(t, []uint64{10, want}, []uint64{listed.Limit.Max, listed.Limit.Burst})
		}
	}
}

// Of a long key, a digest is listed, which is no key.
func TestListReturnsDigests(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l, long := limitOf(window.FixedWindow, time.Minute, 10), strings.Repeat("k", 129)
	c := caller{t, b, l.Algorithm}
	c.of(b.Take(t.Context(), long, l, 3))
	for _, keys := range [][]string{{long}, nil} {
		for listed, err := range b.List(t.Context(), keys...) {
			require.NoError(t, err)
			require.True(t, listed.Digest)
			require.EqualValues(t, 3, listed.Window.Count)
			require.Zero(t, c.get(listed.Key, time.Minute))
			for range b.List(t.Context(), listed.Key) {
				t.Error("the digest is listed as a key")
			}
		}
	}
}

// Short keys are stored in another place than long ones.
func TestKeysOfAnyLength(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l := limitOf(window.FixedWindow, time.Minute, 10)
	l.Name = "name"
	for n := range 40 {
		key := strings.Repeat("k", n)
		for range 2 {
			caller{t, b, l.Algorithm}.of(b.Take(t.Context(), key, l, 1))
		}
		for listed, err := range b.List(t.Context(), key) {
			require.NoError(t, err)
			require.Equal(t, []any{key, "name"}, []any{listed.Key, listed.Limit.Name})
			require.EqualValues(t, 2, listed.Window.Count)
		}
		require.Equal(t, n+1, b.Len())
	}
}

// Of many windows, those that are there all the time are seen, while others are removed. The end of ctx ends the list.
func TestAListOfManyWindows(t *testing.T) {
	b := newBackend(t, backendtest.NewClock())
	l := limitOf(window.FixedWindow, time.Minute, 10)
	const n = 5000
	for i := range n {
		caller{t, b, l.Algorithm}.hit(fmt.Sprint(i), time.Minute)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listed := 0
	for _, err := range b.List(ctx) {
		listed++
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	require.Less(t, listed, 500)
	seen, removed := map[string]bool{}, map[string]bool{}
	for c, err := range b.List(t.Context()) {
		require.NoError(t, err)
		seen[c.Key] = true
		if other := fmt.Sprint(len(seen) * 7 % n); len(seen)%3 == 0 {
			removed[other] = true
			require.NoError(t, b.Reset(t.Context(), other, l))
		}
	}
	for i := range n {
		key := fmt.Sprint(i)
		require.True(t, seen[key] || removed[key], key)
	}
}

// What a bound costs depends on what is used.
func TestBoundsMayBeAsLargeAsPossible(t *testing.T) {
	before := heap()
	for _, opts := range [][]memory.Option{
		{memory.WithMaxKeys(math.MaxInt)}, {memory.WithMaxKeys(math.MaxInt), memory.WithMaxLog(1<<29 - 1)},
		{memory.WithMaxKeys(1), memory.WithMaxLog(10)}, {memory.WithCleanPeriod(math.MaxInt64), memory.WithKeyOlderThan(math.MaxInt64)}, {memory.WithCleanPeriod(1)},
	} {
		b := newBackend(t, backendtest.NewClock(), opts...)
		for _, a := range everyAlgorithm {
			for key := range 3 {
				require.LessOrEqual(t, caller{t, b, a}.hit(fmt.Sprint(key), time.Minute).Count, uint64(10))
			}
		}
		require.Less(t, heap(), before+4_000_000)
	}
}

// Keys of one cell of a table are told apart.
func TestListOfAKeyHasNoOthers(t *testing.T) {
	c := caller{t, newBackend(t, backendtest.NewClock(), memory.WithMaxKeys(64)), window.FixedWindow}
	for i := range 64 {
		c.hit(fmt.Sprint(i), time.Minute)
	}
	for i := range 64 {
		for listed, err := range c.List(t.Context(), fmt.Sprint(i)) {
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), listed.Key)
		}
	}
}
