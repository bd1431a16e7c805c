package transport_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// rejected returns how many errors are not nil. Each of these must match ErrOverloaded and say
// that nothing was sent.
func rejected(t *testing.T, errs []error) (n int) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, throttr.ErrOverloaded)
			require.True(t, testkit.SafeToRetry(err))
			n++
		}
	}
	return n
}

// Config.MaxQueued bounds requests that wait to be sent, which ServerStats.Waiting counts.
func TestTooManyQueuedRequestsAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 3, MaxQueued: 5}))
		srv.Inject(mockserver.Fault{Delay: time.Second})
		probe := srv.Requests(codec.OpInsert)
		errs := make([]error, 20)
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, errs[i] = client.Insert(t.Context(), fmt.Sprint(i), 1, testkit.Minute) })
			synctest.Wait()
		}
		s := testkit.ServerStats(client)
		require.Equal(t, []int{3, 5, 0}, []int{s.InFlight, s.Waiting, s.Acquiring})
		callers.Wait()
		require.Equal(t, 20-3-5, rejected(t, errs))
		require.Equal(t, 3+5, srv.Requests(codec.OpInsert)-probe)
		s = testkit.ServerStats(client)
		require.Equal(t, []int{0, 0, 0}, []int{s.InFlight, s.Waiting, s.Acquiring})
	})
}

// Config.MaxQueued bounds callers that wait for a connection, which ServerStats.Acquiring
// counts.
func TestTooManyCallersThatWaitForAConnectionAreRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxQueued: 5}))
		srv.HoldAccept(true)
		srv.Disconnect()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make([]error, 20)
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() {
				_, _, err := client.Query(ctx, "k")
				if !errors.Is(err, context.DeadlineExceeded) {
					errs[i] = err
				}
			})
			synctest.Wait()
		}
		s := testkit.ServerStats(client)
		require.Equal(t, []int{0, 0, 5}, []int{s.InFlight, s.Waiting, s.Acquiring})
		callers.Wait()
		require.Equal(t, 20-5, rejected(t, errs))
		require.Zero(t, testkit.ServerStats(client).Acquiring)
	})
}

// A client under load has at most two goroutines for each connection, one for each server, one
// for the subscriptions of each server, two for each server of a backend and two more while that is
// swept or kept parked, and one for each key with callers. It has none for a call.
func TestGoroutinesOfAClientAreBounded(t *testing.T) {
	const conns, keys, callers = 3, 4, 100
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{MaxConns: conns, MaxInFlight: 8, StallTimeout: time.Minute})
	limiter := testkit.NewRateLimit(client.Backend())
	testkit.Subscribe(t, client, "c")
	remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Delay: time.Hour})
	defer remove()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	query := func() { client.Query(ctx, "k") }
	for i := range callers {
		all.Go(query)
		all.Go(func() { limiter.Hit(ctx, fmt.Sprint(i%keys), time.Minute, 1000) })
	}
	require.Eventually(t, func() bool { // a call opens another connection if all are busy
		all.Go(query)
		return testkit.ServerStats(client).Conns == conns+1
	}, 5*time.Second, time.Millisecond)
	own := 0
	for _, s := range testkit.Stacks() {
		if !strings.Contains(s, "transport_test.") { // a caller
			own++
		}
	}
	// The subscription has a connection of its own. A connection may be being made, and a listing under way.
	const most = 2*(conns+1) + 1 + 1 + 2 + 2 + keys + 2
	require.LessOrEqual(t, own, most, "with %d callers", 2*callers)
	cancel()
	all.Wait()
	client.Close()
	testkit.RequireNoGoroutines(t)
}

// A connection that is too old is replaced, and stays open until its responses have come. Here
// they are late. A server never has more than twice Config.MaxConns: calls wait for room.
func TestReplacedConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			MaxConns: 1, MaxConnAge: time.Second, HealthInterval: 100 * time.Millisecond, StallTimeout: time.Hour,
		}))
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Delay: 10 * time.Second})
		most := 0
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() {
				if _, _, err := client.Query(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			most = max(most, srv.Conns())
		}
		callers.Wait()
		require.Equal(t, 2, most)
	})
}

func TestLimiterWorksWithOneRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 1}))
		limiter := testkit.NewRateLimit(client.Backend())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 3 {
			res, err := limiter.Hit(ctx, "k", time.Minute, 2)
			require.NoError(t, err)
			require.Equal(t, i < 2, res.Allowed)
		}
	})
}
