package transport_test

import (
	"context"
	"errors"
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

// counted counts the bytes of a connection.
type counted struct {
	net.Conn
	read, written *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// step is a request of the conversation that is cut: what it asks, of which executions
// it consists, and whether its answer is right.
type step struct {
	op  codec.Op
	key string
	run func(ctx context.Context, c *throttr.Client[uint16]) (right bool, err error)
}

// conversation is a bit of everything, each on a key of its own.
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

// cutTest holds a conversation with a server over connections that can be cut.
type cutTest struct {
	*testing.T
	srv      *mockserver.Server
	executed journal
	cfg      throttr.Config
	outcomes []asked
}

func newCutTest(t *testing.T, cfg throttr.Config, opts ...mockserver.Option) *cutTest {
	c := &cutTest{T: t}
	c.srv = mockserver.RunT(t, append(opts, mockserver.WithObserver(c.executed.observe))...)
	for _, key := range []string{"query", "update", "get", "batch", "purge"} {
		c.srv.Set(key, 7, time.Minute)
	}
	c.cfg = cfg
	c.cfg.Servers = []string{c.srv.Addr()}
	return c
}

// connect makes a client; where the probe has been cut, the second time.
func (c *cutTest) connect() *throttr.Client[uint16] {
	client, err := throttr.Connect[uint16](c.Context(), c.cfg)
	if err != nil {
		require.ErrorIs(c, err, throttr.ErrConnect)
		client, err = throttr.Connect[uint16](c.Context(), c.cfg)
	}
	require.NoError(c, err)
	c.Cleanup(func() { client.Close() })
	return client
}

// talk runs the conversation, its steps one after the other or all at once.
func (c *cutTest) talk(client *throttr.Client[uint16], atOnce bool) {
	c.outcomes = make([]asked, len(conversation))
	var all sync.WaitGroup
	for i, s := range conversation {
		run := func() {
			right, err := s.run(c.Context(), client)
			c.outcomes[i] = asked{s.op, s.key, right, err}
		}
		if atOnce {
			all.Go(run)
		} else {
			run()
		}
	}
	all.Wait()
}

// check holds the outcomes against what the server has executed, and returns how many
// steps have failed.
func (c *cutTest) check(what string) (failures int) {
	for _, a := range c.outcomes {
		n := c.executed.times(a.op, a.key)
		if a.op != codec.OpQuery && a.op != codec.OpGet {
			require.LessOrEqual(c, n, 1, "%s: %v %s was repeated", what, a.op, a.key)
		}
		if a.err == nil {
			require.True(c, a.right, "%s: %v %s", what, a.op, a.key)
			require.Positive(c, n)
			continue
		}
		failures++
		require.ErrorIs(c, a.err, throttr.ErrConnLost, what)
		require.NotEqual(c, codec.OpQuery, a.op, "%s: a read is repeated", what)
		require.NotEqual(c, codec.OpGet, a.op, "%s: a read is repeated", what)
		require.False(c, throttr.SafeToRetry(a.err), "%s: what was not sent is repeated", what)
	}
	return failures
}

// next makes sure that the client goes on.
func (c *cutTest) next(client *throttr.Client[uint16], what string) {
	_, ok, err := client.Query(c.Context(), "query")
	require.NoError(c, err, what)
	require.True(c, ok, what)
}

func TestACutAtAnyByteIsToldTruthfully(t *testing.T) {
	for _, direction := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		for _, atOnce := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/at once=%v", direction, atOnce), func(t *testing.T) {
				failures, total := 0, 1
				for after := 0; after <= total; after++ {
					synctest.Test(t, func(t *testing.T) {
						n, failed := cutAfter(t, mockserver.Cut{Direction: direction, After: after, Times: 1}, atOnce)
						total = max(total, n)
						failures += failed
					})
				}
				require.Greater(t, total, 20)
				require.Greater(t, failures, 10, "cuts that hit what may not be repeated")
			})
		}
	}
}

// cutAfter returns how many bytes go in the cut's direction if it does not happen, and
// how many steps fail.
func cutAfter(t *testing.T, cut mockserver.Cut, atOnce bool) (total, failures int) {
	var read, written atomic.Int64
	var c *cutTest
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := c.srv.Dial(ctx)
		return counted{nc, &read, &written}, err
	}
	c = newCutTest(t, throttr.Config{Dial: dial, MaxConns: 1}, mockserver.WithAddr("memory", "cut:1"))
	c.srv.Cut(cut)
	client := c.connect()
	c.talk(client, atOnce)
	what := fmt.Sprintf("cut %v after %d", cut.Direction, cut.After)
	failures = c.check(what)
	c.next(client, what)
	require.NoError(t, client.Close())
	synctest.Wait()
	require.Zero(t, c.srv.Conns())
	if cut.Direction == mockserver.FromClient {
		return int(written.Load()), failures
	}
	return int(read.Load()), failures
}

func TestACutOverTCPIsToldTruthfully(t *testing.T) {
	for _, direction := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		for after := 0; after < 250; after += 1 + 12*(1-int(direction)) {
			if direction == mockserver.ToClient && after > 50 {
				break
			}
			c := newCutTest(t, throttr.Config{})
			c.srv.Cut(mockserver.Cut{Direction: direction, After: after, Times: 1})
			client := c.connect()
			c.talk(client, true)
			what := fmt.Sprintf("cut %v after %d", direction, after)
			c.check(what)
			c.next(client, what)
			require.NoError(t, client.Close())
			c.srv.Close()
		}
	}
	testkit.RequireNoGoroutines(t)
}

var errFull = errors.New("no more is taken")

// narrow takes so many bytes more, and then no write.
type narrow struct {
	net.Conn
	left *atomic.Int64
}

func (c narrow) Write(p []byte) (int, error) {
	n := min(int64(len(p)), c.left.Load())
	c.left.Add(-n)
	if n == 0 && len(p) > 0 {
		return 0, errFull
	}
	m, err := c.Conn.Write(p[:n])
	if err == nil && m < len(p) {
		err = errFull
	}
	return m, err
}

// Several requests leave in one write, and the network takes a part of it: those that lie
// beyond were not sent, and are repeated; all others may have been executed.
func TestAWriteThatIsTakenInPartIsToldTruthfully(t *testing.T) {
	failed := map[codec.Op]int{}
	for after := range 150 {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int64
			var c *cutTest
			first := true
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
				nc, err := c.srv.Dial(ctx)
				if first {
					first = false
					return narrow{nc, &left}, err
				}
				return nc, err
			}
			c = newCutTest(t, throttr.Config{Dial: dial, MaxConns: 1}, mockserver.WithAddr("memory", "cut:1"))
			left.Store(1 << 20)
			client := c.connect()
			left.Store(int64(after))
			c.talk(client, true)
			c.check(fmt.Sprintf("%d bytes are taken", after))
			for _, a := range c.outcomes {
				if a.err != nil {
					require.ErrorIs(t, a.err, errFull)
					failed[a.op]++
				}
			}
			c.next(client, "next")
			require.NoError(t, client.Close())
		})
	}
	require.Len(t, failed, 4, "INSERT, UPDATE, SET and PURGE each were hit: %v", failed)
}

func TestWhatWasNotSentIsSaidToBeSafeToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var executed journal
		srv := testkit.InMemory(t, mockserver.WithObserver(executed.observe))
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{MaxConns: 1, MaxInFlight: 3})))
		srv.Inject(mockserver.Fault{Op: codec.OpInsert, Drop: true})
		const callers = 10
		outcomes := make([]error, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { _, outcomes[i] = client.Insert(t.Context(), fmt.Sprint(i), 1, testkit.Minute) })
		}
		synctest.Wait()
		require.Equal(t, 3, testkit.ServerStats(client).InFlight)
		require.Equal(t, callers-3, testkit.ServerStats(client).Waiting)
		srv.Disconnect()
		all.Wait()
		safe := 0
		for i, err := range outcomes {
			require.ErrorIs(t, err, throttr.ErrConnLost)
			require.Equal(t, executed.times(codec.OpInsert, fmt.Sprint(i)) == 0, throttr.SafeToRetry(err))
			if throttr.SafeToRetry(err) {
				safe++
			}
		}
		require.Equal(t, callers-3, safe)
	})
}
