package limiter_test

import (
	"context"
	"net"
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
)

// slowLimiter returns a limiter whose requests take a while to reach the server.
func slowLimiter[T codec.Value](t *testing.T, srv *mockserver.Server, delay time.Duration) *throttr.RateLimit {
	t.Helper()
	return testkit.NewRateLimit(testkit.Connect[T](t, srv, throttr.Config{
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return slowConn{nc, delay}, err
		},
	}).Backend())
}

// slowConn is a connection that delays each write.
type slowConn struct {
	net.Conn
	delay time.Duration
}

// Write implements net.Conn.
func (c slowConn) Write(p []byte) (int, error) {
	time.Sleep(c.delay)
	return c.Conn.Write(p)
}

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

// Hits of a client that is far away arrive around the end of the window that they were meant for.
func TestSlowClientAtTheEndOfAWindow(t *testing.T) {
	for early := time.Duration(0); early <= 24*time.Millisecond; early += 500 * time.Microsecond {
		synctest.Test(t, func(t *testing.T) {
			const limit = 5
			var log history[uint16]
			srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
			srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			slow, near := slowLimiter[uint16](t, srv, 20*time.Millisecond), testkit.Limiter[uint16](t, srv)
			start := time.Now()
			testkit.Hits(t, near, 1, "k", time.Second, limit)
			testkit.Hits(t, slow, 1, "k", time.Second, limit)
			time.Sleep(time.Until(start.Add(1200 * time.Millisecond)))
			testkit.Hits(t, near, 1, "k", time.Second, limit)
			testkit.Hits(t, slow, 1, "k", time.Second, limit)
			end := log.windowsOf(modelKey{"k", time.Second})[1].end
			time.Sleep(time.Until(end.Add(-early)))
			var callers sync.WaitGroup
			var granted operations
			for _, l := range []*throttr.RateLimit{slow, near} {
				callers.Go(func() {
					for range 2 * limit {
						op := operation{kind: opHit, key: modelKey{"k", time.Second}, n: 1, limit: limit}
						op.do(t.Context(), l, time.Minute)
						if op.err != nil {
							t.Error(op)
						}
						granted.add(op)
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			callers.Wait()
			k := log.of(modelKey{"k", time.Second})
			require.Empty(t, k.errors)
			require.Len(t, k.windows, 3)
			taken, homeless := k.match(granted.of(modelKey{"k", time.Second}))
			require.Empty(t, homeless)
			require.EqualValues(t, limit, taken[k.windows[2]])
			testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Second))
		})
	}
}

// A client that has found no window adds a large increment to the one that another client opens
// meanwhile. It must not wrap the counter (H3).
func TestLargeIncrementDoesNotWrapANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 190
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		slow := slowLimiter[uint8](t, srv, 400*time.Millisecond)
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

// Several clients open a window at the same time, with increments that do not all fit the limit.
func TestLargeIncrementsOpenOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log history[uint16]
		srv := testkit.InMemory(t, mockserver.WithObserver(log.observe))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients, goroutines, increment, limit = 8, 3, 1500, 20_000
		var callers sync.WaitGroup
		var allowed atomic.Int64
		for range clients {
			l := testkit.Limiter[uint16](t, srv)
			for range goroutines {
				callers.Go(func() {
					res, err := l.HitN(t.Context(), "k", throttr.Limit{Max: limit, Scale: time.Second}, increment)
					if err != nil || res.Count < increment {
						t.Errorf("%v, %v", res, err)
					}
					if res.Allowed {
						allowed.Add(1)
					}
				})
			}
		}
		callers.Wait()
		require.EqualValues(t, limit/increment, allowed.Load())
		require.Len(t, log.windowsOf(modelKey{"k", time.Second}), 1)
		testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Second))
	})
}

// No client opens a slot beside one that is live. If another program has made two live ones, all
// clients use the older one.
func TestClientsAgreeOnOneOfTwoLiveSlots(t *testing.T) {
	t.Run("uint8", func(t *testing.T) { synctest.Test(t, testTwoSlots[uint8]) })
	t.Run("uint64", func(t *testing.T) { synctest.Test(t, testTwoSlots[uint64]) })
}

func testTwoSlots[T codec.Value](t *testing.T) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	opener := testkit.Limiter[T](t, srv)
	require.Equal(t, 10, testkit.Hits(t, opener, 10, "k", time.Minute, 20))
	names := testkit.Keys(srv)
	require.Len(t, names, 1)
	b, ok := slot.BandsFor(time.Minute, uint64(^T(0)))
	require.True(t, ok)
	require.Equal(t, b.Tag(slot.A)+":1m0s:k", names[0])
	time.Sleep(10 * time.Second)
	unit := codec.Nanoseconds
	for unit.Duration() != b.Unit {
		unit++
	}
	client := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{}))
	ok, err := client.Insert(t.Context(), b.Tag(slot.B)+":1m0s:k", 3, codec.TTL[T]{Amount: T(b.Top), Unit: unit})
	require.NoError(t, err)
	require.True(t, ok)

	one, two := testkit.Limiter[T](t, srv), testkit.Limiter[T](t, srv)
	allowed := testkit.Hits(t, one, 6, "k", time.Minute, 20) + testkit.Hits(t, opener, 3, "k", time.Minute, 20) +
		testkit.Hits(t, two, 6, "k", time.Minute, 20)
	require.Equal(t, 10, allowed)
	n, err := testkit.Limiter[T](t, srv).Get(t.Context(), "k", time.Minute)
	require.NoError(t, err)
	require.Greater(t, n, uint64(20))
}
