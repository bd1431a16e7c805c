package limiter_test

import (
	"context"
	"fmt"
	"net"
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

// slowLimiter returns a limiter whose requests take a while to reach the server.
func slowLimiter[T codec.Value](t *testing.T, srv *mockserver.Server, delay time.Duration) *throttr.RateLimit {
	t.Helper()
	return throttr.NewRateLimit(testkit.Connect[T](t, srv, throttr.Config{
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

// A call that opens a window names its bucket. If the call is executed more than a scale later,
// here because a slow response holds it up, other clients look for the window in later buckets
// only. They must not open a second one.
func TestWindowThatOpensLateIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, limit = 200 * time.Millisecond, 5
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Op: codec.OpGet, Delay: 700 * time.Millisecond})
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{MaxConns: 1})))
		late, other := throttr.NewRateLimit(client.Backend()), testkit.Limiter[uint16](t, srv)
		var callers sync.WaitGroup
		callers.Go(func() {
			time.Sleep(500 * time.Microsecond) // during the lookup
			client.Get(t.Context(), "slow")
		})
		allowed := testkit.Hits(t, late, limit, "k", scale, limit)
		n, err := other.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, limit, n, "another client does not find the window")
		allowed += testkit.Hits(t, other, limit, "k", scale, limit)
		require.Equal(t, limit, allowed)
		callers.Wait()
	})
}

// A Set whose lookup is repeated after a stall opens a window even later.
func TestWindowThatASetOpensLateIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 200 * time.Millisecond
		srv := testkit.InMemory(t)
		late := throttr.NewRateLimit(testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: 4 * scale})).Backend())
		srv.HalfOpen()
		other := testkit.Limiter[uint16](t, srv)
		_, err := late.Set(t.Context(), "k", scale, 7)
		require.NoError(t, err)
		n, err := other.Get(t.Context(), "k", scale)
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
	})
}

// Two clients open a window at the same time, and the client with the younger record removes it. A
// third client must not count hits there, even if the older window ends before the removal.
func TestHitsInAYoungerRecordAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		slow := slowLimiter[uint16](t, srv, 20*time.Millisecond)
		first, third := testkit.Limiter[uint16](t, srv), testkit.Limiter[uint16](t, srv)
		start := time.Now().Truncate(time.Second).Add(time.Second)
		sleepUntil := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		sleepUntil(0)
		testkit.Hits(t, third, 1, "k", time.Second, limit)
		testkit.Hits(t, slow, 1, "k", time.Second, limit)
		sleepUntil(1300 * time.Millisecond) // that window is over; first opens the next one about a millisecond later
		testkit.Hits(t, first, 1, "k", time.Second, limit)
		var callers sync.WaitGroup
		var allowed atomic.Int64
		callers.Go(func() { // its call is executed half a millisecond before the end of first's window
			sleepUntil(2280500 * time.Microsecond)
			allowed.Add(int64(testkit.Hits(t, slow, 2*limit, "k", time.Second, limit)))
		})
		callers.Go(func() {
			sleepUntil(2301200 * time.Microsecond)
			allowed.Add(int64(testkit.Hits(t, third, 2*limit, "k", time.Second, limit)))
		})
		callers.Wait()
		require.EqualValues(t, limit, allowed.Load())
		testkit.RequireRemoved(t, srv, 5*time.Second)
	})
}

// A client that has found no window must not add a large increment to the one that another client
// opens meanwhile, because that could wrap the counter (H3).
func TestLargeIncrementDoesNotWrapANewWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 190
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		slow := slowLimiter[uint8](t, srv, 400*time.Millisecond)
		time.Sleep(time.Second)
		var callers sync.WaitGroup
		callers.Go(func() {
			res, err := slow.HitN(t.Context(), "k", time.Minute, 100, 92)
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

// An increment that is too large to be added to a counter without reading it, see
// TestLargeIncrementDoesNotWrapANewWindow, is the initial count of a record.
func TestLargeIncrementsOpenOneWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		const clients, goroutines, increment, limit = 8, 3, 1500, 20_000
		var callers sync.WaitGroup
		var allowed atomic.Int64
		for i := range clients { // some are in the next bucket already
			l := testkit.Limiter[uint16](t, srv, testkit.ClockAhead(time.Duration(i)*100*time.Millisecond))
			for range goroutines {
				callers.Go(func() {
					res, err := l.HitN(t.Context(), "k", time.Second, limit, increment)
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
		testkit.RequireRemoved(t, srv, 5*time.Second)
	})
}

// A client that dies after it opened the younger of two records leaves it behind. All clients then
// agree on the record with the higher count.
//
//evidence:bounds Lookups if two records are equally old
func TestClientsAgreeOnOneOfTwoRecords(t *testing.T) {
	t.Run("uint8", func(t *testing.T) { synctest.Test(t, testTwoRecords[uint8]) })
	t.Run("uint64", func(t *testing.T) { synctest.Test(t, testTwoRecords[uint64]) })
}

func testTwoRecords[T codec.Value](t *testing.T) {
	srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
	time.Sleep(50 * time.Second)
	opener := testkit.Limiter[T](t, srv, testkit.ClockAhead(30*time.Second)) // in the next bucket
	require.Equal(t, 10, testkit.Hits(t, opener, 10, "k", time.Minute, 20))
	names := testkit.Keys(srv)
	require.Len(t, names, 1)
	_, id, ok := parseRecordName(names[0])
	require.True(t, ok)
	// Another record has nearly the same TTL.
	time.Sleep(300 * time.Microsecond)
	ttl, _ := srv.TTL(names[0])
	unit, amount := codec.Nanoseconds, uint64(ttl+300*time.Microsecond)
	if codec.Size[T]() == 1 {
		unit, amount = codec.Seconds, 90
	}
	client := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{}))
	ok, err := client.Insert(t.Context(), fmt.Sprintf("rl:1m0s:%d:k", id.id-1), 1, codec.TTL[T]{Amount: T(amount), Unit: unit})
	require.NoError(t, err)
	require.True(t, ok)

	a, b := testkit.Limiter[T](t, srv), testkit.Limiter[T](t, srv)
	allowed := testkit.Hits(t, a, 6, "k", time.Minute, 20) + testkit.Hits(t, opener, 3, "k", time.Minute, 20) +
		testkit.Hits(t, b, 6, "k", time.Minute, 20)
	require.Equal(t, 10, allowed)
	n, err := testkit.Limiter[T](t, srv).Get(t.Context(), "k", time.Minute)
	require.NoError(t, err)
	require.Greater(t, n, uint64(20))
}
