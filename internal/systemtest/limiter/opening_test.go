package limiter_test

import (
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

// A lookup whose response is late is repeated: what it has shown may not be true any more.
func TestWindowThatOpensLateIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 200 * time.Millisecond, 5
		var log history[uint16]
		srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
		late, other := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		testkit.Hits(t, late, 1, "another", time.Minute, 1) // so that it has a connection for lookups
		time.Sleep(time.Second)                             // for the sweepers
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "wiA:200ms:k", Delay: 700 * time.Millisecond, Times: 1})
		start := time.Now()
		allowed := testkit.Hits(t, late, limit, "k", scale, limit)
		require.Equal(t, 700*time.Millisecond, time.Since(start))
		n, err := other.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, limit, n, "another client does not find the window")
		allowed += testkit.Hits(t, other, limit, "k", scale, limit)
		require.Equal(t, limit, allowed)
		require.Len(t, log.windowsOf(modelKey{"k", scale}), 1)
	})
}

// A Set whose lookup is repeated after a stall opens a window even later.
func TestWindowThatASetOpensLateIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 200 * time.Millisecond
		srv := testkit.InMemory(t)
		late := testkit.NewRateLimit(testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: 4 * scale})).Backend())
		srv.HalfOpen()
		other := testkit.Limiter[uint16](t, srv)
		_, err := late.Set(t.Context(), "k", scale, 7)
		require.NoError(t, err)
		n, err := other.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
	})
}

// A client that has found no window adds a large increment to the one that another client opens
// meanwhile. It must not wrap the counter (H3).
func TestLargeIncrementDoesNotWrapANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 190
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		far := farAway(srv, 0)
		far.there.Store(int64(400 * time.Millisecond))
		slow := testkit.NewRateLimit(testkit.Connect[uint8](t, srv, throttr.Config{Dial: far.dial}).Backend())
		time.Sleep(time.Second)
		var callers sync.WaitGroup
		callers.Go(func() {
			res, err := slow.HitN(t.Context(), "k", throttr.Limit{Max: 100, Scale: time.Minute}, 92)
			if err != nil || res.Allowed {
				t.Errorf("%v, %v", res, err)
			}
		})
		time.Sleep(410 * time.Millisecond) // its lookup has found nothing
		fast := testkit.Limiter[uint8](t, srv)
		require.Equal(t, limit, testkit.Hits(t, fast, 230, "k", time.Minute, limit))
		callers.Wait()
		require.Zero(t, testkit.Hits(t, fast, 10, "k", time.Minute, limit))
		require.Zero(t, testkit.Hits(t, testkit.Limiter[uint8](t, srv), 10, "k", time.Minute, limit), "the counter has wrapped")
	})
}
