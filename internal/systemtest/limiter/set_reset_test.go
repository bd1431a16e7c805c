package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"github.com/throttr-go/throttr/window"
)

// After a Reset, the next window can have a record of the same name as the last. Two clients open
// it at the same time, in different buckets. A third client, which knows the old window, must not
// count its hit in the record that is about to be removed.
func TestHitAfterAResetIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = time.Second, 3
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		ahead := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(100*time.Millisecond))
		resetter, third := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		start := time.Now().Truncate(scale).Add(scale)
		sleepUntil := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		sleepUntil(900 * time.Millisecond)
		testkit.Hits(t, third, 1, "k", scale, limit)
		require.NoError(t, resetter.Reset(t.Context(), "k", scale))
		var callers sync.WaitGroup
		var allowed atomic.Int64
		for _, c := range []struct {
			limiter *throttr.RateLimit
			at      time.Duration
		}{{ahead, 950 * time.Millisecond}, {resetter, 950_300 * time.Microsecond}, {third, 951_800 * time.Microsecond}} {
			callers.Go(func() {
				sleepUntil(c.at)
				allowed.Add(int64(testkit.Hits(t, c.limiter, 1, "k", scale, limit)))
			})
		}
		callers.Wait()
		require.LessOrEqual(t, int(allowed.Load())+testkit.Hits(t, ahead, 5, "k", scale, limit), limit)
	})
}

// After a Reset, a record with the name of the old window can be one that is about to be removed,
// because there is an older one. A client that knows the old window must not return its count.
func TestGetAfterAResetReadsTheNewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = time.Second
		srv := testkit.InMemory(t)
		resetter, other := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		sleepUntilBucket(scale)
		time.Sleep(100 * time.Millisecond)
		testkit.Hits(t, other, 1, "k", scale, 9)
		names := testkit.Keys(srv)
		require.Len(t, names, 1)
		require.NoError(t, resetter.Reset(t.Context(), "k", scale))
		behind := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(-200*time.Millisecond)) // in the previous bucket
		testkit.Hits(t, behind, 5, "k", scale, 9)
		time.Sleep(50 * time.Millisecond)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		ok, err := client.Insert(t.Context(), names[0], 1, codec.TTL[uint16]{Amount: 31_000, Unit: codec.Milliseconds})
		require.NoError(t, err)
		require.True(t, ok)
		for _, l := range []*throttr.RateLimit{resetter, other} {
			n, err := l.Get(t.Context(), "k", scale)
			require.NoError(t, err)
			require.EqualValues(t, 5, n)
		}
	})
}

func TestConcurrentSetsLeaveOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients = 12
		limiters := make([]*throttr.RateLimit, clients)
		for i := range limiters {
			limiters[i] = testkit.Limiter[uint16](t, srv, testkit.ClockAhead(time.Duration(i)*500*time.Millisecond))
		}
		time.Sleep(7 * time.Second) // some are in the next bucket
		for range 5 {
			var callers sync.WaitGroup
			for i, l := range limiters {
				callers.Go(func() {
					if _, err := l.Set(t.Context(), "k", 10*time.Second, uint64(100+i)); err != nil {
						t.Errorf("set: %v", err)
					}
				})
			}
			callers.Wait()
			require.Len(t, testkit.Keys(srv), 1)
			n, _ := srv.Counter(testkit.Keys(srv)[0])
			for _, l := range limiters {
				got, err := l.Get(t.Context(), "k", 10*time.Second)
				require.NoError(t, err)
				require.Equal(t, n, got)
			}
		}
		testkit.RequireRemoved(t, srv, time.Minute)
	})
}

// A server does not accept the name of an expired record for a while (H1). Set then opens the
// window in the next bucket. An aligned window has no other bucket, so Set fails. In neither case
// does the backend remember a record that it did not insert.
func TestSetIfTheNameOfTheRecordHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		for algorithm, prefix := range map[window.Algorithm]string{window.PerKey: "rl", window.Aligned: "al"} {
			backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithAlgorithm(algorithm))
			l := throttr.NewRateLimit(backend)
			srv.Set(fmt.Sprintf("%s:1m0s:%d:k", prefix, time.Now().UnixNano()/int64(time.Minute)), 5, time.Millisecond)
			time.Sleep(time.Second)
			_, err := l.Set(t.Context(), "k", time.Minute, 3)
			if algorithm == window.Aligned {
				require.Error(t, err)
				require.Zero(t, backend.Stats().Records)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 1, backend.Stats().Records)
			require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 5))
		}
	})
}

func TestSetsAndResetsDuringAFlood(t *testing.T) {
	t.Run("uint8", func(t *testing.T) { synctest.Test(t, testMixedCalls[uint8]) })
	t.Run("uint16", func(t *testing.T) { synctest.Test(t, testMixedCalls[uint16]) })
	t.Run("uint64", func(t *testing.T) { synctest.Test(t, testMixedCalls[uint64]) })
}

// testMixedCalls makes random calls from several clients. No call may fail, no more hits may be
// allowed than the limit for each window, and no record may be left. After that, a window allows
// exactly the limit.
func testMixedCalls[T codec.Value](t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const clients, goroutines, limit, scale, duration = 5, 6, 20, time.Second, 20 * time.Second
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	srv.Inject(mockserver.Fault{Delay: 2 * time.Millisecond})
	var mu sync.Mutex
	allowed, denied := 0, 0
	hit := func(ctx context.Context, l *throttr.RateLimit) error {
		res, err := l.Hit(ctx, "k", scale, limit)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
		case res.Allowed:
			allowed++
		default:
			denied++
			if res.RetryAfter <= 0 || res.RetryAfter > scale {
				t.Errorf("seed %d: %+v", seed, res)
			}
		}
		return err
	}
	var replaced atomic.Int64 // windows, by Set or Reset
	start := time.Now()
	var callers sync.WaitGroup
	for c := range clients {
		l := testkit.Limiter[T](t, srv, testkit.ClockAhead(time.Duration(c)*90*time.Millisecond))
		for g := range goroutines {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(c*goroutines+g)))
				for time.Since(start) < duration {
					var err error
					switch op := r.IntN(400); {
					case op < 1:
						replaced.Add(1)
						_, err = l.Set(t.Context(), "k", scale, r.Uint64N(limit))
					case op < 2:
						replaced.Add(1)
						err = l.Reset(t.Context(), "k", scale)
					case op < 10:
						_, err = l.Get(t.Context(), "k", scale)
					case op < 12:
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(5))*time.Millisecond)
						err = hit(ctx, l)
						cancel()
						if throttr.Timeout(err) {
							err = nil
						}
					default:
						err = hit(t.Context(), l)
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
	callers.Wait()
	require.Greater(t, allowed, limit*10, "seed %d: windows without hits", seed)
	require.LessOrEqual(t, allowed, limit*(int(duration/scale)+1+int(replaced.Load())), "seed %d", seed)
	require.Positive(t, denied)
	testkit.RequireRemoved(t, srv, 10*time.Second)

	var last atomic.Int64
	for c := range clients {
		l := testkit.Limiter[T](t, srv, testkit.ClockAhead(time.Duration(c)*90*time.Millisecond))
		callers.Go(func() { last.Add(int64(testkit.Hits(t, l, limit, "k", time.Minute, limit))) })
	}
	callers.Wait()
	require.EqualValues(t, limit, last.Load(), "seed %d", seed)
}
