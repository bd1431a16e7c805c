package limiter_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
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
			resetter, other := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
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

func TestConcurrentSetsLeaveOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log history[uint16]
		srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients, scale = 12, 10 * time.Second
		limiters := make([]*throttr.RateLimit, clients)
		for i := range limiters {
			limiters[i] = testkit.Limiter[uint16](t, srv)
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

// A server does not accept the name of an expired record for a while (H1). The window opens when it does.
func TestSetIfTheNameOfTheRecordHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		b, ok := slot.BandsFor(time.Minute, math.MaxUint16)
		require.True(t, ok)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend()
		l := testkit.NewRateLimit(backend)
		srv.Set(b.Tag(slot.A)+":1m0s:k", 5, time.Millisecond)
		time.Sleep(time.Second)
		_, err := l.Set(t.Context(), "k", time.Minute, 3)
		require.NoError(t, err)
		require.Equal(t, 1, backend.Records().Records)
		require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 5))
	})
}

// Clients that are nearer to the server open another window as soon as one is ended. A Reset does
// not end that, too.
func TestResetEndsOneWindowOfAHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 10 * time.Minute, 60000
		srv := testkit.InMemory(t)
		at := func(trip time.Duration) *throttr.RateLimit {
			client := testkit.Connect[uint16](t, srv, throttr.Config{Dial: testkit.Far(srv, trip).Dial})
			return testkit.NewRateLimit(client.Backend())
		}
		near, far := at(time.Millisecond), at(20*time.Millisecond)
		testkit.Hits(t, near, 1, "k", scale, limit)
		var hitting sync.WaitGroup
		stop := make(chan struct{})
		opened := 0
		hitting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := near.Hit(t.Context(), "k", scale, limit)
				if err != nil {
					t.Errorf("Hit: %v", err)
					return
				}
				if res.Count == 1 {
					opened++
				}
			}
		})
		before := time.Now()
		require.NoError(t, far.Reset(t.Context(), "k", scale))
		require.Less(t, time.Since(before), 2*time.Second, "a guard, and some round trips")
		close(stop)
		hitting.Wait()
		require.LessOrEqual(t, opened, 1)
	})
}
