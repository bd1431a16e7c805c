package limiter_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// After a Reset, clients still know the old window. What they add to it is not lost, and is not
// granted twice.
func TestHitAfterAResetIsNotLost(t *testing.T) {
	for wait := time.Duration(0); wait < 1200*time.Millisecond; wait += 17 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			const scale, limit = 2 * time.Second, 3
			var log history[uint16]
			srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
			srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			resetter, other := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv, testkit.ClockAhead(time.Hour))
			testkit.Hits(t, other, 2, "k", scale, limit)
			var callers sync.WaitGroup
			var all operations
			do := func(l *throttr.RateLimit, kind operationKind) {
				op := operation{kind: kind, key: modelKey{"k", scale}, n: 1, limit: limit}
				op.do(t.Context(), l, time.Minute)
				if op.err != nil {
					t.Error(op)
				}
				all.add(op)
			}
			callers.Go(func() { do(resetter, opReset) })
			for _, l := range []*throttr.RateLimit{resetter, other} {
				callers.Go(func() {
					time.Sleep(wait)
					do(l, opHit)
				})
			}
			callers.Wait()
			for range limit {
				do(other, opHit)
				do(resetter, opHit)
			}
			k := log.of(modelKey{"k", scale})
			require.Empty(t, k.errors)
			require.Len(t, k.windows, 2)
			taken, homeless := k.match(all.of(modelKey{"k", scale}))
			require.Empty(t, homeless)
			require.EqualValues(t, limit, taken[k.windows[1]])
		})
	}
}

// A client that knows the window from before a Reset must not return its count.
func TestGetAfterAResetReadsTheNewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = time.Second
		srv := testkit.InMemory(t)
		resetter, other := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		for range 3 { // each in the other slot
			testkit.Hits(t, other, 1, "k", scale, 9)
			require.NoError(t, resetter.Reset(t.Context(), "k", scale))
			for _, l := range []*throttr.RateLimit{resetter, other} {
				n, err := l.Get(t.Context(), "k", scale)
				require.NoError(t, err)
				require.Zero(t, n)
			}
			testkit.Hits(t, resetter, 4, "k", scale, 9)
			n, err := other.Get(t.Context(), "k", scale)
			require.NoError(t, err)
			require.EqualValues(t, 4, n)
			time.Sleep(scale)
		}
	})
}

func TestConcurrentSetsLeaveOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log history[uint16]
		srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients, scale = 12, 10 * time.Second
		limiters := make([]*throttr.RateLimit, clients)
		for i := range limiters {
			limiters[i] = testkit.Limiter[uint16](t, srv, testkit.ClockAhead(time.Duration(i)*time.Hour))
		}
		for range 5 {
			var callers sync.WaitGroup
			for i, l := range limiters {
				callers.Go(func() {
					if _, err := l.Set(t.Context(), "k", scale, uint64(100+i)); err != nil {
						t.Errorf("set: %v", err)
					}
				})
			}
			callers.Wait()
			k := log.of(modelKey{"k", scale})
			require.Empty(t, k.errors)
			w := k.open(time.Now())
			require.NotNil(t, w)
			for _, l := range limiters {
				got, err := l.Get(t.Context(), "k", scale)
				require.NoError(t, err)
				require.Equal(t, w.count, got)
			}
		}
		testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, scale))
	})
}

// A server does not accept the name of an expired record for a while (H1). Windows that are kept
// in slots open when it does. That of an aligned window is not tried again, so Set fails.
func TestSetIfTheNameOfTheRecordHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		b, ok := slot.BandsFor(time.Minute, math.MaxUint16)
		require.True(t, ok)
		for algorithm, name := range map[throttr.Algorithm]string{
			window.FixedWindow:    b.Tag(slot.A) + ":1m0s:k",
			throttr.AlignedWindow: fmt.Sprintf("al:1m0s:%d:k", time.Now().UnixNano()/int64(time.Minute)),
		} {
			backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
			l := testkit.NewRateLimit(backend, throttr.WithAlgorithm(algorithm))
			srv.Set(name, 5, time.Millisecond)
			time.Sleep(time.Second)
			_, err := l.Set(t.Context(), "k", time.Minute, 3)
			if algorithm == throttr.AlignedWindow {
				require.Error(t, err)
				time.Sleep(2 * time.Minute)
				require.Zero(t, backend.Records().Records)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, 1, backend.Records().Records)
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
	var log history[T]
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithObserver(log.observe))
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
		l := testkit.Limiter[T](t, srv, testkit.ClockAhead(time.Duration(c)*time.Hour))
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
						if testkit.Timeout(err) {
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
	require.Empty(t, log.of(modelKey{"k", scale}).errors, "seed %d", seed)
	testkit.RequireRemoved(t, srv, testkit.Idle[T](t, scale))

	var last atomic.Int64
	for c := range clients {
		l := testkit.Limiter[T](t, srv, testkit.ClockAhead(time.Duration(c)*time.Hour))
		callers.Go(func() { last.Add(int64(testkit.Hits(t, l, limit, "k", time.Minute, limit))) })
	}
	callers.Wait()
	require.EqualValues(t, limit, last.Load(), "seed %d", seed)
}
