package transport_test

import (
	"context"
	"fmt"
	"net"
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

// step is a part of the conversation that is cut: requests on one key.
type step struct {
	op  codec.Op // of the request that may change something, if there is one
	key string
	run func(ctx context.Context, c *throttr.Client[uint16]) (right bool, err error)
}

// conversation has a step for each kind of request, and a batch.
var conversation = []step{
	{codec.OpInsert, "insert", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Insert(ctx, "insert", 1, testkit.Minute)
	}},
	{codec.OpQuery, "query", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		r, ok, err := c.Query(ctx, "query")
		return ok && r.Quota == 7, err
	}},
	{codec.OpUpdate, "update", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Update(ctx, "update", codec.Quota, codec.Increase, 3)
	}},
	{codec.OpSet, "set", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Set(ctx, "set", []byte("some value"), testkit.Minute)
	}},
	{codec.OpGet, "get", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		r, ok, err := c.Get(ctx, "get")
		return ok && len(r.Value) == 0, err // it is a counter
	}},
	{codec.OpUpdate, "batch", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		var b throttr.Batch[uint16]
		update, query := b.Update("batch", codec.Quota, codec.Increase, 1), b.Query("batch")
		if err := c.Do(ctx, &b); err != nil {
			return false, err
		}
		updated, _ := update.OK()
		r, found, _ := query.Counter()
		return updated && found && r.Quota == 8, nil
	}},
	{codec.OpPurge, "purge", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Purge(ctx, "purge")
	}},
}

// result is the outcome of a step.
type result struct {
	right bool // the response, if there is one, is the only one that can be right
	err   error
}

// cutTest is a conversation with a server whose connection is cut.
type cutTest struct {
	*testing.T
	results []result // of the steps

	mu       sync.Mutex     // guards what follows
	executed map[string]int // how often the server executed an op on a key
}

// converse runs the steps of the conversation, one after the other or in parallel.
func (c *cutTest) converse(client *throttr.Client[uint16], parallel bool) {
	c.results = make([]result, len(conversation))
	var all sync.WaitGroup
	for i, s := range conversation {
		all.Go(func() { c.results[i].right, c.results[i].err = s.run(c.Context(), client) })
		if !parallel {
			all.Wait()
		}
	}
	all.Wait()
}

// check compares the results with what the server executed, and returns how many steps
// failed.
func (c *cutTest) check(what string) (failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range conversation {
		r := c.results[i]
		n := c.executed[fmt.Sprint(s.op, s.key)]
		reads := s.op == codec.OpQuery || s.op == codec.OpGet
		if !reads {
			require.LessOrEqual(c, n, 1, "%s: %v %s was executed again", what, s.op, s.key)
		}
		if r.err == nil {
			require.True(c, r.right, "%s: %v %s", what, s.op, s.key)
			require.Positive(c, n)
			continue
		}
		failures++
		require.ErrorIs(c, r.err, throttr.ErrConnLost, what)
		require.False(c, reads, "%s: the client repeats a read", what)
		require.False(c, testkit.SafeToRetry(r.err), "%s: the client repeats a request that was not sent", what)
	}
	return failures
}

// Each byte of the conversation, in either direction, is once the last before the connection
// ends. A request fails only if it may have been executed, and no request is executed twice.
func TestConnectionCutAtAnyByte(t *testing.T) {
	for _, direction := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		for _, parallel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/parallel=%v", direction, parallel), func(t *testing.T) {
				failures, total := 0, 1
				for after := 0; after <= total; after++ {
					synctest.Test(t, func(t *testing.T) {
						n, failed := testCut(t, mockserver.Cut{Direction: direction, After: after, Times: 1}, parallel)
						total = max(total, n)
						failures += failed
					})
				}
				require.Greater(t, total, 20)
				require.Greater(t, failures, 10, "requests that may not be repeated")
			})
		}
	}
}

// testCut returns how many bytes went in the direction of the cut, and how many steps failed.
func testCut(t *testing.T, cut mockserver.Cut, parallel bool) (total, failures int) {
	c := &cutTest{T: t, executed: map[string]int{}}
	srv := mockserver.RunT(t, mockserver.WithAddr("memory", "cut:1"), mockserver.WithObserver(func(e mockserver.Exec) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.executed[fmt.Sprint(e.Op, e.Key)]++
	}))
	for _, key := range []string{"query", "update", "get", "batch", "purge"} {
		srv.Set(key, 7, time.Minute)
	}
	var traffic testkit.Traffic
	cfg := throttr.Config{Servers: []string{srv.Addr()}, MaxConns: 1}
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		return traffic.Count(nc), err
	}
	srv.Cut(cut)
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	if err != nil { // the probe was cut
		require.ErrorIs(t, err, throttr.ErrConnect)
		client, err = throttr.Connect[uint16](t.Context(), cfg)
	}
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	c.converse(client, parallel)
	what := fmt.Sprintf("cut %v after %d", cut.Direction, cut.After)
	failures = c.check(what)
	_, ok, err := client.Query(t.Context(), "query")
	require.NoError(t, err, what)
	require.True(t, ok, what)
	require.NoError(t, client.Close())
	synctest.Wait()
	require.Zero(t, srv.Conns())
	return int(traffic[cut.Direction].Load()), failures
}
