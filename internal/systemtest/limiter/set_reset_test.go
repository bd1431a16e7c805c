package limiter_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

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
		requireRemoved(t, srv, idle[uint16](t, scale))
	})
}

func TestResetByAnotherClientTakesEffectAfterTheDenialMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		other := testkit.Limiter[uint16](t, srv)
		none := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(-1))
		long := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(10*time.Second))
		require.Equal(t, 2, testkit.Hits(t, long, 3, "k", time.Minute, 2))
		require.Zero(t, testkit.Hits(t, none, 3, "k", time.Minute, 2))
		start := time.Now()
		require.NoError(t, other.Reset(t.Context(), "k", time.Minute))
		require.Equal(t, time.Second, time.Since(start), "a Reset takes a guard")
		require.Equal(t, 1, testkit.Hits(t, none, 1, "k", time.Minute, 2))
		time.Sleep(9*time.Second - 1)
		require.Zero(t, testkit.Hits(t, long, 1, "k", time.Minute, 2))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, testkit.Hits(t, long, 1, "k", time.Minute, 2))
	})
}
