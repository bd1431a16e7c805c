package limiter_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
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
		require.Len(t, testkit.Keys(srv), 13)
		testkit.RequireRemoved(t, srv, 3*time.Minute)
	})
}

func TestShortestAndLongestScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(8))
		l := testkit.Limiter[uint64](t, srv)
		for _, scale := range []time.Duration{time.Millisecond, time.Millisecond + 1, 100 * 365 * 24 * time.Hour, math.MaxInt64 - time.Minute} {
			require.Equal(t, 3, testkit.Hits(t, l, 5, "k", scale, 3), "%v", scale)
			res, err := l.Hit(t.Context(), "k", scale, 3)
			require.NoError(t, err)
			require.Equal(t, scale, res.RetryAfter, "%v", scale)
		}
		_, err := l.Hit(t.Context(), "k", math.MaxInt64, 3)
		require.ErrorIs(t, err, throttr.ErrRange)
		for _, scale := range []time.Duration{-time.Second, 0, time.Millisecond - 1} {
			_, err = l.Hit(t.Context(), "k", scale, 3)
			require.ErrorIs(t, err, throttr.ErrScale)
		}
	})
}

func TestLimitOfZeroDeniesAndIncrementOfZeroReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testkit.Limiter[uint64](t, testkit.InMemory(t, mockserver.WithValueSize(8)))
		require.Zero(t, testkit.Hits(t, l, 2, "denied", time.Second, 0))
		res, err := l.HitN(t.Context(), "read", time.Second, 3, 0)
		require.NoError(t, err)
		require.Equal(t, uint64(3), res.Remaining)
	})
}

func TestLimitsOfOneKeyApplyAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		allowed := map[uint64]int{} // by limit
		var mu sync.Mutex
		var callers sync.WaitGroup
		for range 4 {
			l := testkit.Limiter[uint8](t, srv)
			for g := range 24 {
				limit := []uint64{5, 60, 191}[g%3]
				callers.Go(func() {
					for range 30 {
						res, err := l.Hit(t.Context(), "k", time.Minute, limit)
						if err != nil {
							t.Errorf("hit: %v", err)
							return
						}
						if res.Allowed {
							mu.Lock()
							allowed[limit]++
							mu.Unlock()
						}
					}
				})
				callers.Go(func() { testkit.Hits(t, l, 2, "k", time.Second, 100) })
			}
		}
		callers.Wait()
		sum := allowed[5] + allowed[60] + allowed[191]
		require.LessOrEqual(t, sum, 191)
		require.Greater(t, sum, 150, "%v: hits that a lower limit denies may be counted, but only a few", allowed)
		require.LessOrEqual(t, allowed[5], 5)
		require.LessOrEqual(t, allowed[5]+allowed[60], 60)
		testkit.RequireRemoved(t, srv, 3*time.Minute)
	})
}

//evidence:bounds Windows that a backend remembers
func TestMemoryOfABackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWindows = 128
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithMaxWindows(maxWindows))
		l := throttr.NewRateLimit(backend)
		for i := range 4 * maxWindows {
			require.Equal(t, 1, testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 2))
			require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		}
		require.Equal(t, 4*maxWindows, backend.Stats().Records)
		_, err := l.Hit(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrTooManyWindows)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, throttr.SafeToRetry(err))
		_, err = l.Set(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrTooManyWindows)
		for i := range 4 * maxWindows { // forgotten windows keep their counts, on the server
			require.Equal(t, 1, testkit.Hits(t, l, 2, fmt.Sprint(i), time.Minute, 2))
		}
		_, err = l.Get(t.Context(), "read only", time.Minute)
		require.NoError(t, err)
		testkit.RequireRemoved(t, srv, 3*time.Minute)
		require.Zero(t, backend.Stats().Records)
		require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		require.Equal(t, 1, testkit.Hits(t, l, 1, "one more", time.Minute, 2))
	})
}

//evidence:bounds Windows that are over are forgotten
func TestWindowsThatAreOverAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
		l := throttr.NewRateLimit(backend)
		for i := range 1000 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Second, 2)
		}
		testkit.RequireRemoved(t, srv, 5*time.Second)
		require.Zero(t, backend.Stats().Records)
		require.Zero(t, backend.Stats().Windows)
	})
}

// 64 clients that add to a counter at the same time must not wrap it (H3).
//
//evidence:limits 64 clients at once do not wrap a counter of one byte (H3)
func TestSixtyFourClientsDoNotWrapACounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, goroutines, limit = 64, 16, 191
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		var allowed atomic.Int64
		hit := func(l *throttr.RateLimit) {
			res, err := l.Hit(t.Context(), "k", time.Minute, limit)
			if err != nil {
				t.Errorf("hit: %v", err)
			}
			if res.Allowed {
				allowed.Add(1)
			}
		}
		limiters := make([]*throttr.RateLimit, clients)
		for i := range limiters {
			limiters[i] = throttr.NewRateLimit(testkit.Connect[uint8](t, srv, testkit.Over(srv, throttr.Config{})).Backend())
			hit(limiters[i]) // so that each client knows the window
		}
		var callers sync.WaitGroup
		for range 20 {
			for _, l := range limiters {
				for range goroutines {
					callers.Go(func() { hit(l) })
				}
			}
			callers.Wait()
		}
		require.EqualValues(t, limit, allowed.Load())
		count, ok := srv.Counter(testkit.Keys(srv)[0])
		require.True(t, ok)
		require.Greater(t, count, uint64(limit), "the counter has wrapped")
	})
}
