package limiter_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestKeysOfAnyLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		l, other := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		for _, n := range []int{0, 1, 80, 81, 255, 256, 10_000} {
			key := strings.Repeat("k", n)
			require.Equal(t, 3, testkit.Hits(t, l, 2, key, time.Minute, 3)+testkit.Hits(t, other, 2, key, time.Minute, 3), "%d bytes", n)
			require.Equal(t, 3, testkit.Hits(t, l, 4, key, time.Second, 3), "%d bytes, another scale", n)
		}
		require.Len(t, testkit.Keys(srv), 14)
		require.NoError(t, l.Reset(t.Context(), strings.Repeat("k", 10_000), time.Minute))
		require.Equal(t, 3, testkit.Hits(t, l, 4, strings.Repeat("k", 10_000), time.Minute, 3))
		require.Len(t, testkit.Keys(srv), 15, "its next window is in the other slot")
		testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Minute))
	})
}

func TestShortestAndLongestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(8))
		l := testkit.Limiter[uint64](t, srv)
		for _, scale := range []time.Duration{time.Millisecond, time.Millisecond + 1, 49 * 365 * 24 * time.Hour} {
			require.Equal(t, 3, testkit.Hits(t, l, 5, "k", scale, 3), "%v", scale)
			res, err := l.Hit(t.Context(), "k", scale, 3)
			require.NoError(t, err)
			require.Equal(t, scale, res.RetryAfter, "%v", scale)
		}
		for _, scale := range []time.Duration{50 * 365 * 24 * time.Hour, 1 << 62} {
			_, err := l.Hit(t.Context(), "k", scale, 3)
			require.ErrorIs(t, err, throttr.ErrRange)
		}
		for _, scale := range []time.Duration{-time.Second, 0, time.Millisecond - 1, math.MaxInt64} {
			_, err := l.Hit(t.Context(), "k", scale, 3)
			require.ErrorIs(t, err, throttr.ErrScale)
		}
	})
}

func TestMemoryOfABackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWindows = 128
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithMaxWindows(maxWindows))
		l := testkit.NewRateLimit(backend)
		for i := range 4 * maxWindows {
			require.Equal(t, 1, testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 2))
			require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		}
		require.Equal(t, 4*maxWindows, backend.Records().Records)
		_, err := l.Hit(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, testkit.SafeToRetry(err))
		_, err = l.Set(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		for i := range 4 * maxWindows { // forgotten windows keep their counts, on the server
			require.Equal(t, 1, testkit.Hits(t, l, 2, fmt.Sprint(i), time.Minute, 2))
		}
		_, err = l.Get(t.Context(), "read only", time.Minute)
		require.NoError(t, err)
		testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Minute))
		require.Zero(t, backend.Records().Records)
		require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		require.Equal(t, 1, testkit.Hits(t, l, 1, "one more", time.Minute, 2))
	})
}

func TestWindowsThatAreOverAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
		l := testkit.NewRateLimit(backend)
		for i := range 1000 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Second, 2)
		}
		testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Second))
		require.Zero(t, backend.Records().Records)
		require.Zero(t, backend.Stats().Windows)
	})
}

// 64 clients add to a counter of one key at the same time, far beyond its limit. It must not wrap
// (H3), however high the limit is.
func TestSixtyFourClientsGetExactlyTheLimit(t *testing.T) {
	t.Run("uint8", func(t *testing.T) { testSixtyFour[uint8](t, 20, 191, 254, 255) })
	t.Run("uint16", func(t *testing.T) { testSixtyFour[uint16](t, 1000) })
	t.Run("uint32", func(t *testing.T) { testSixtyFour[uint32](t, 1000) })
	t.Run("uint64", func(t *testing.T) { testSixtyFour[uint64](t, 1000) })
}

func testSixtyFour[T codec.Value](t *testing.T, limits ...uint64) {
	const clients, goroutines, rounds = 64, 8, 5
	for _, limit := range limits {
		synctest.Test(t, func(t *testing.T) {
			var log history[T]
			var granted operations
			srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe))
			srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			hit := func(l *throttr.RateLimit) {
				op := operation{kind: opHit, key: modelKey{"k", time.Minute}, n: 1, limit: limit}
				op.do(t.Context(), l, time.Minute)
				if op.err != nil {
					t.Error(op)
				}
				granted.add(op)
			}
			limiters := make([]*throttr.RateLimit, clients)
			var callers sync.WaitGroup
			for i := range limiters {
				limiters[i] = testkit.Limiter[T](t, srv)
			}
			for range rounds {
				for _, l := range limiters {
					for range goroutines {
						callers.Go(func() { hit(l) })
					}
				}
				callers.Wait()
			}
			k := log.of(modelKey{"k", time.Minute})
			require.Empty(t, k.errors)
			require.Len(t, k.windows, 1)
			taken, homeless := k.match(granted.of(modelKey{"k", time.Minute}))
			require.Empty(t, homeless)
			require.Equal(t, limit, taken[k.windows[0]])
		})
	}
}
