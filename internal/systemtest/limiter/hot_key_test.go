package limiter_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestConcurrentHitsShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { require.Less(t, requestsOf500Hits(t), 20) })
}

// requestsOf500Hits returns the number of UPDATEs for 500 hits of 100 callers.
func requestsOf500Hits(t *testing.T, opts ...throttr.BackendOption) int {
	srv, count := countRequests(t, "k")
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	l := testkit.Limiter[uint16](t, srv, opts...)
	testkit.Hits(t, l, 1, "k", time.Minute, 5000)
	count()
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() { testkit.Hits(t, l, 5, "k", time.Minute, 5000) })
	}
	callers.Wait()
	return count().updates
}

func TestDenialsAreDecidedFromMemory(t *testing.T) {
	for memory, queries := range map[time.Duration]int{ // for 599 denials, one each 100 ms
		-1:                     600, // one for each hit
		0:                      60,  // the default for a scale of one minute is 1 s
		100 * time.Millisecond: 600,
		5 * time.Second:        12,
		time.Hour:              0,
	} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, count := countRequests(t, "k")
				l := testkit.Limiter[uint16](t, srv, throttr.WithDenialMemory(memory))
				require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2))
				count()
				for range 599 {
					time.Sleep(100 * time.Millisecond)
					require.Zero(t, testkit.Hits(t, l, 1, "k", time.Minute, 2))
				}
				require.InDelta(t, queries, count().queries, 2)
				time.Sleep(100 * time.Millisecond)
				require.Equal(t, 2, testkit.Hits(t, l, 3, "k", time.Minute, 2), "the window is over")
			})
		})
	}
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
