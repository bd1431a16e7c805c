package transport_test

import (
	"context"
	"fmt"
	"net"
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

// refusals counts the errors, each of which must say that too many wait and that nothing
// was sent.
func refusals(t *testing.T, errs []error) (n int) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, throttr.ErrOverloaded)
			require.True(t, throttr.SafeToRetry(err))
			n++
		}
	}
	return n
}

// TestTooManyWhoWaitForAConnectionAreRefused has the only connection end and the next one
// take a second to make.
func TestTooManyWhoWaitForAConnectionAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		slow := false
		client := testkit.Connect[uint16](t, srv, throttr.Config{MaxWaiting: 5, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if slow {
				time.Sleep(time.Second)
			}
			return srv.Dial(ctx)
		}})
		slow = true
		srv.Disconnect()
		synctest.Wait()
		errs := make([]error, 20)
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, _, errs[i] = client.Query(t.Context(), "k") })
			synctest.Wait()
		}
		require.Equal(t, 5, testkit.ServerStats(client).Acquiring)
		callers.Wait()
		require.Equal(t, 20-5, refusals(t, errs))
		require.Zero(t, testkit.ServerStats(client).Acquiring)
	})
}

// TestTooManyHitsOnAKeyAreRefused has hits come while a request for their window is under
// way. Those of another key are none the worse for it.
func TestTooManyHitsOnAKeyAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxWaiting: 50}))
		limiter := throttr.NewRateLimit(client.Backend())
		require.Equal(t, 1, testkit.Hits(t, limiter, 1, "hot", time.Minute, 100))
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Delay: time.Second})
		errs := make([]error, 200)
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, errs[i] = limiter.Hit(t.Context(), "hot", time.Minute, 100) })
			synctest.Wait()
		}
		require.Equal(t, 1, testkit.Hits(t, limiter, 1, "another", time.Minute, 100))
		callers.Wait()
		require.Equal(t, 200-1-50, refusals(t, errs), "one is under way, and 50 wait")
		res, err := limiter.Hit(t.Context(), "hot", time.Minute, 100)
		require.NoError(t, err)
		require.EqualValues(t, 1+1+50+1, res.Count)
	})
}

// TestTheGoroutinesOfAClientAreBounded counts them under load: two for each connection, one
// for each server, one more for each server of a backend, and one for each key with callers.
// None is for a call.
func TestTheGoroutinesOfAClientAreBounded(t *testing.T) {
	const conns, keys, callers = 3, 4, 100
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{MaxConns: conns, MaxInFlight: 8, StallTimeout: time.Minute})
	limiter := throttr.NewRateLimit(client.Backend())
	sub, err := client.Subscribe(t.Context(), "c")
	require.NoError(t, err)
	defer sub.Close()
	remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Hour})
	defer remove()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	query := func() { client.Query(ctx, "k") }
	for i := range callers {
		all.Go(query)
		all.Go(func() { limiter.Hit(ctx, fmt.Sprint(i%keys), time.Minute, 1000) })
	}
	own := func() int {
		n := 0
		for _, s := range testkit.Stacks() {
			if !strings.Contains(s, "throttr_test.") { // a caller
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { // one who comes has another connection made, if all are busy
		all.Go(query)
		return testkit.ServerStats(client).Conns == conns+1
	}, 5*time.Second, time.Millisecond)
	const most = 2*(conns+1) + 1 + 1 + 1 + keys // the subscription has a connection and a goroutine
	require.LessOrEqual(t, own(), most, "with %d callers", 2*callers)
	cancel()
	all.Wait()
	client.Close()
	testkit.RequireNoGoroutines(t)
}

// TestConnectionsThatEndTakeUpRoom has each connection get too old while its answers are
// late. It is replaced, and ends when it has them; but there are never more than twice
// MaxConns, and who needs a further one waits for it.
func TestConnectionsThatEndTakeUpRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			MaxConns: 1, MaxConnAge: time.Second, HealthInterval: 100 * time.Millisecond, StallTimeout: time.Hour,
		}))
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: 10 * time.Second})
		most := 0
		var callers sync.WaitGroup
		for range 30 {
			callers.Go(func() {
				_, _, err := client.Query(t.Context(), "k")
				require.NoError(t, err)
			})
			time.Sleep(time.Second)
			most = max(most, srv.Conns())
		}
		callers.Wait()
		require.Equal(t, 2, most)
	})
}

// TestSubscriptionsAreMadeAFewAtATime has 200 channels subscribed to at once, on a server
// that takes a second to answer: EVENTs can be outstanding besides.
func TestSubscriptionsAreMadeAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Delay: time.Second})
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				_, err := client.Subscribe(t.Context(), fmt.Sprint(i))
				require.NoError(t, err)
			})
		}
		most, before := 0, 0
		for range 10 {
			synctest.Wait()
			now := srv.Requests(codec.OpSubscribe)
			most, before = max(most, now-before), now
			time.Sleep(time.Second)
		}
		all.Wait()
		require.Equal(t, 200, before)
		require.Equal(t, 64, most)
	})
}
