package limiter_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestAClockThatJumpsStaysInItsWindow(t *testing.T) {
	for _, jump := range []time.Duration{-59 * time.Second, -time.Second, time.Second, 50 * time.Second} {
		for _, who := range []string{"who opened it", "who joined it"} {
			t.Run(fmt.Sprintf("%v/%s", jump, who), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testkit.InMemory(t)
					var mu sync.Mutex
					var shift time.Duration
					l := testkit.Limiter[uint16](t, srv, throttr.WithClock(func() time.Time {
						mu.Lock()
						defer mu.Unlock()
						return time.Now().Round(0).Add(shift)
					}))
					other := testkit.Limiter[uint16](t, srv)
					if who == "who joined it" {
						require.Equal(t, 2, testkit.Hits(t, other, 2, "k", time.Minute, 10))
						require.Equal(t, 1, testkit.Hits(t, l, 1, "k", time.Minute, 10))
					} else {
						require.Equal(t, 3, testkit.Hits(t, l, 3, "k", time.Minute, 10))
					}
					time.Sleep(5 * time.Second)
					mu.Lock()
					shift = jump
					mu.Unlock()
					require.Equal(t, 7, testkit.Hits(t, l, 12, "k", time.Minute, 10))
					res, err := l.Hit(t.Context(), "k", time.Minute, 10)
					require.NoError(t, err)
					require.Positive(t, res.RetryAfter)
					require.LessOrEqual(t, res.RetryAfter, time.Minute)
					require.Zero(t, testkit.Hits(t, other, 1, "k", time.Minute, 10))
					mu.Lock()
					shift = 0
					mu.Unlock()
					require.Zero(t, testkit.Hits(t, l, 1, "k", time.Minute, 10))
					mu.Lock()
					shift = jump
					mu.Unlock()
					time.Sleep(55 * time.Second) // the window is over
					time.Sleep(2 * time.Second)  // whatever the jump, a full window is asked for again by then
					require.Equal(t, 10, testkit.Hits(t, l, 12, "k", time.Minute, 10))
				})
			})
		}
	}
}

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

func TestScalesAtTheirExtremes(t *testing.T) {
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
		_, err = l.Hit(t.Context(), "k", 0, 3)
		require.ErrorIs(t, err, throttr.ErrScale)
		_, err = l.Hit(t.Context(), "k", -time.Second, 3)
		require.ErrorIs(t, err, throttr.ErrScale)
		backend := testkit.Connect[uint64](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
		_, err = backend.Hit(t.Context(), "k", 0, 3, 1)
		require.ErrorIs(t, err, throttr.ErrScale)
		require.Zero(t, testkit.Hits(t, l, 2, "none", time.Second, 0), "a limit of 0")
		res, err := l.HitN(t.Context(), "asked", time.Second, 3, 0)
		require.NoError(t, err)
		require.Equal(t, uint64(3), res.Remaining)
	})
}

func TestLimitsAndScalesOnOneKeyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		allowed := map[uint64]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 4 {
			l := testkit.Limiter[uint8](t, srv)
			for g := range 24 {
				limit := []uint64{5, 60, 191}[g%3]
				all.Go(func() {
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
				all.Go(func() { testkit.Hits(t, l, 2, "k", time.Second, 100) })
			}
		}
		all.Wait()
		sum := allowed[5] + allowed[60] + allowed[191]
		require.LessOrEqual(t, sum, 191) // those denied at a lower limit can have places, too
		require.Greater(t, sum, 150, "%v", allowed)
		require.LessOrEqual(t, allowed[5], 5)
		require.LessOrEqual(t, allowed[5]+allowed[60], 60)
		testkit.RequireRemoved(t, srv, 3*time.Minute)
	})
}

func TestWhatABackendRemembersIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 128
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithMaxWindows(most))
		l := throttr.NewRateLimit(backend)
		for i := range 4 * most {
			require.Equal(t, 1, testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 2))
			require.LessOrEqual(t, backend.Stats().Windows, most)
		}
		require.Equal(t, 4*most, backend.Stats().Records)
		_, err := l.Hit(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrTooManyWindows)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, throttr.SafeToRetry(err))
		_, err = l.Set(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrTooManyWindows)
		for i := range 4 * most { // what was forgotten is exact
			require.Equal(t, 1, testkit.Hits(t, l, 2, fmt.Sprint(i), time.Minute, 2))
		}
		_, err = l.Get(t.Context(), "read only", time.Minute)
		require.NoError(t, err)
		testkit.RequireRemoved(t, srv, 3*time.Minute)
		require.Zero(t, backend.Stats().Records)
		require.LessOrEqual(t, backend.Stats().Windows, most)
		require.Equal(t, 1, testkit.Hits(t, l, 1, "one more", time.Minute, 2))
	})
}

func TestFinishedWindowsAreForgotten(t *testing.T) {
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

// Sets, resets, reads and hits of several clients at once: no error, no more than the
// limit between two of the former, and nothing stays behind.
func TestSetsAndResetsAmongFloods(t *testing.T) {
	t.Run("uint8", func(t *testing.T) { synctest.Test(t, testMixture[uint8]) })
	t.Run("uint16", func(t *testing.T) { synctest.Test(t, testMixture[uint16]) })
	t.Run("uint64", func(t *testing.T) { synctest.Test(t, testMixture[uint64]) })
}

func testMixture[T codec.Value](t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const clients, goroutines, limit, scale, lasts = 5, 6, 20, time.Second, 20 * time.Second
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	srv.Inject(mockserver.Fault{Delay: 2 * time.Millisecond})
	var mu sync.Mutex
	allowed, denied := 0, 0
	var began atomic.Int64 // windows, by Set or after a Reset
	start := time.Now()
	var all sync.WaitGroup
	for c := range clients {
		l := testkit.Limiter[T](t, srv, testkit.ClockAhead(time.Duration(c)*90*time.Millisecond))
		for g := range goroutines {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(c*goroutines+g)))
				for time.Since(start) < lasts {
					var err error
					var res throttr.Result
					switch op := r.IntN(400); {
					case op < 2:
						began.Add(1)
						if op == 1 {
							err = l.Reset(t.Context(), "k", scale)
							break
						}
						_, err = l.Set(t.Context(), "k", scale, r.Uint64N(limit))
					case op < 10:
						_, err = l.Get(t.Context(), "k", scale)
					case op < 12:
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(5))*time.Millisecond)
						_, err = l.Hit(ctx, "k", scale, limit)
						cancel()
						if throttr.Timeout(err) {
							err = nil
						}
					default:
						res, err = l.Hit(t.Context(), "k", scale, limit)
						mu.Lock()
						if res.Allowed {
							allowed++
						} else {
							denied++
						}
						mu.Unlock()
						if !res.Allowed && (res.RetryAfter <= 0 || res.RetryAfter > scale) {
							t.Errorf("seed %d: %+v", seed, res)
						}
					}
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				}
			})
		}
	}
	all.Wait()
	require.Greater(t, allowed, limit*10, "seed %d: shut out", seed)
	require.LessOrEqual(t, allowed, limit*(int(lasts/scale)+1+int(began.Load())), "seed %d", seed)
	require.Positive(t, denied)
	testkit.RequireRemoved(t, srv, 10*time.Second)
	// After all that, a window is exact.
	var last sync.WaitGroup
	got := make([]int, clients)
	for c := range clients {
		l := testkit.Limiter[T](t, srv, testkit.ClockAhead(time.Duration(c)*90*time.Millisecond))
		last.Go(func() { got[c] = testkit.Hits(t, l, limit, "k", time.Minute, limit) })
	}
	last.Wait()
	sum := 0
	for _, n := range got {
		sum += n
	}
	require.Equal(t, limit, sum, "seed %d", seed)
}
