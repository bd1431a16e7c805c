package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// The contexts of half of the callers end at a random moment. All others must get their own
// responses, on the same connection.
func TestCanceledCallDoesNotAffectOthers(t *testing.T) {
	for split := range 4 {
		t.Run(fmt.Sprintf("split %d", split), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCanceledCalls(t, split) })
		})
	}
}

// testCanceledCalls has the server send its responses in pieces of split bytes.
func testCanceledCalls(t *testing.T, split int) {
	const callers = 2000
	var executed journal
	srv := testkit.InMemory(t, mockserver.WithObserver(executed.observe))
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 40}))
	fill(t, srv, client, callers)
	srv.Split(split)
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})

	results := make([]result, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, deadline := t.Context(), time.Time{}
			if rand.N(2) == 0 {
				deadline = time.Now().Add(rand.N(60 * time.Millisecond))
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, deadline)
				defer cancel()
			}
			results[i] = request(ctx, client, i)
			if results[i].err != nil && !time.Now().Equal(deadline) {
				t.Errorf("%v came %v after the deadline", results[i].err, time.Since(deadline))
			}
		})
	}
	all.Wait()
	require.NoError(t, client.Close())

	var answered, canceled, unsent int
	for _, r := range results {
		n := executed.count(r.op, r.key)
		if r.err == nil {
			answered++
			require.True(t, r.right, "%v %s", r.op, r.key)
			require.Equal(t, 1, n)
			continue
		}
		canceled++
		var failed *throttr.RequestError
		require.ErrorAs(t, r.err, &failed)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.True(t, testkit.Timeout(r.err))
		require.Equal(t, r.op, failed.Op)
		require.LessOrEqual(t, n, 1)
		if !failed.Sent {
			unsent++
			require.Zero(t, n, "%v %s was executed though the error says that it was not sent", r.op, r.key)
		}
	}
	require.Greater(t, answered, callers/3)
	require.Greater(t, canceled, callers/10)
	require.Greater(t, unsent, callers/20)
	s := testkit.ServerStats(client)
	require.EqualValues(t, 1, s.Dials, "one connection served all callers")
	require.Zero(t, s.Failures)
}

func TestCallWithEndedContextSendsNothing(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Insert(ctx, "k", 1, testkit.Minute)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, testkit.SafeToRetry(err))
	var b throttr.Batch[uint16]
	r := b.Purge("k")
	require.ErrorIs(t, client.Do(ctx, &b), context.Canceled)
	_, err = r.OK()
	require.True(t, testkit.SafeToRetry(err))
	_, _, err = client.Query(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, srv.Requests(codec.OpInsert), "of the probe")
	require.Equal(t, 4, srv.Requests(codec.OpPurge), "of the probe")
}
