package transport_test

import (
	"context"
	"errors"
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

// journal counts the executions of each request by its op and key.
type journal struct {
	mu   sync.Mutex
	seen map[string]int
}

func (j *journal) observe(e mockserver.Exec) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = make(map[string]int)
	}
	j.seen[e.Op.String()+" "+e.Key]++
}

func (j *journal) times(op codec.Op, key string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen[op.String()+" "+key]
}

// asked is the outcome of a request.
type asked struct {
	op    codec.Op
	key   string
	right bool // the answer, if there is one, is the only one that can be right
	err   error
}

// ask makes the i-th request of a kind that i decides, on a key that no other request
// has: the answers differ, so that one that reaches the wrong caller is noticed.
func ask(ctx context.Context, client *throttr.Client[uint16], i int) (a asked) {
	key := fmt.Sprint("key:", i)
	switch i % 4 {
	case 0:
		c, ok, err := client.Query(ctx, key)
		return asked{codec.OpQuery, key, ok && c.Quota == uint16(i), err}
	case 1:
		b, ok, err := client.Get(ctx, "b"+key)
		return asked{codec.OpGet, "b" + key, ok && string(b.Value) == key, err}
	case 2:
		ok, err := client.Insert(ctx, key, uint16(i), testkit.Minute)
		return asked{codec.OpInsert, key, ok == (i%8 == 6), err} // the others exist
	default:
		ok, err := client.Update(ctx, key, codec.Quota, codec.Decrease, uint16(i))
		return asked{codec.OpUpdate, key, ok == (i%8 == 3), err} // the others have less
	}
}

// prepare puts in what n requests ask for.
func prepare(t *testing.T, srv *mockserver.Server, client *throttr.Client[uint16], n int) {
	for i := range n {
		key := fmt.Sprint("key:", i)
		switch {
		case i%4 == 1:
			ok, err := client.Set(t.Context(), "b"+key, []byte(key), testkit.Minute)
			require.NoError(t, err)
			require.True(t, ok)
		case i%8 == 7:
			srv.Set(key, uint64(i-1), time.Minute)
		case i%8 != 6:
			srv.Set(key, uint64(i), time.Minute)
		}
	}
}

func TestCallersWhoLeaveDisturbNobody(t *testing.T) {
	for split := range 4 {
		t.Run(fmt.Sprintf("split %d", split), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { halfOfThemLeave(t, split) })
		})
	}
}

func halfOfThemLeave(t *testing.T, split int) {
	const callers = 2000
	var executed journal
	srv := testkit.InMemory(t, mockserver.WithObserver(executed.observe))
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 40}))
	prepare(t, srv, client, callers)
	srv.Split(split)
	srv.Inject(mockserver.Fault{Delay: time.Millisecond})

	outcomes := make([]asked, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, until := t.Context(), time.Time{}
			if rand.N(2) == 0 {
				until = time.Now().Add(rand.N(60 * time.Millisecond))
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, until)
				defer cancel()
			}
			outcomes[i] = ask(ctx, client, i)
			if outcomes[i].err != nil && !time.Now().Equal(until) {
				t.Errorf("%v came at %v, not at once", outcomes[i].err, time.Since(until))
			}
		})
	}
	all.Wait()
	require.NoError(t, client.Close())

	var answered, left, unsent int
	for _, a := range outcomes {
		n := executed.times(a.op, a.key)
		if a.err == nil {
			answered++
			require.True(t, a.right, "%v %s", a.op, a.key)
			require.Equal(t, 1, n)
			continue
		}
		left++
		var failed *throttr.RequestError
		require.ErrorAs(t, a.err, &failed)
		require.ErrorIs(t, a.err, context.DeadlineExceeded)
		require.True(t, throttr.Timeout(a.err))
		require.Equal(t, a.op, failed.Op)
		require.LessOrEqual(t, n, 1)
		if !failed.Sent {
			unsent++
			require.Zero(t, n, "%v %s was executed, though it was never sent", a.op, a.key)
		}
	}
	require.Greater(t, answered, callers/3)
	require.Greater(t, left, callers/10)
	require.Greater(t, unsent, callers/20)
	s := testkit.ServerStats(client)
	require.EqualValues(t, 1, s.Dials, "one connection served them all")
	require.Zero(t, s.Failures)
}

func TestCallersWhoLeaveDisturbNobodyOverTCP(t *testing.T) {
	const callers = 2000
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{MaxConns: 1})
	prepare(t, srv, client, callers)
	srv.Split(3)
	srv.Inject(mockserver.Fault{Delay: 50 * time.Microsecond})
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 {
				defer time.AfterFunc(rand.N(20*time.Millisecond), cancel).Stop()
			}
			a := ask(ctx, client, i)
			if a.err == nil && !a.right {
				t.Errorf("%v %s: the wrong answer", a.op, a.key)
			}
			if a.err != nil && !errors.Is(a.err, context.Canceled) {
				t.Errorf("%v %s: %v", a.op, a.key, a.err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, testkit.ServerStats(client).Dials)
}

func TestACallerWhoseContextIsOverSendsNothing(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client.Insert(ctx, "k", 1, testkit.Minute)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, throttr.SafeToRetry(err))
	var b throttr.Batch[uint16]
	r := b.Purge("k")
	require.ErrorIs(t, client.Do(ctx, &b), context.Canceled)
	_, err = r.OK()
	require.True(t, throttr.SafeToRetry(err))
	_, _, err = client.Query(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, srv.Requests(codec.OpInsert), "the probe's")
	require.Equal(t, 4, srv.Requests(codec.OpPurge), "the probe's")
}
