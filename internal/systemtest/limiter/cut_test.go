package limiter_test

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

// connections counts the bytes of a client's connections, in the order of dialing.
type connections struct {
	mu  sync.Mutex // guards all, and what it points to
	all []*[2]int  // by direction
}

// dial returns a Dial that counts the bytes of connections to srv.
func (c *connections) dial(srv *mockserver.Server) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		bytes := &[2]int{}
		c.all = append(c.all, bytes)
		return countedConn{nc, c, bytes}, nil
	}
}

// count counts n bytes.
func (c *connections) count(bytes *[2]int, d mockserver.Direction, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes[d] += n
}

// countedConn is a connection whose bytes are counted.
type countedConn struct {
	net.Conn
	all   *connections
	bytes *[2]int
}

// Read implements net.Conn.
func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.all.count(c.bytes, mockserver.ToClient, n)
	return n, err
}

// Write implements net.Conn.
func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.all.count(c.bytes, mockserver.FromClient, n)
	return n, err
}

// cutEverywhere runs a test without a cut, and then with a cut at each byte of the first
// connection, which hits share, and of the second one, on which windows are looked up and opened,
// unless they are aligned. The server has values of size bytes, and is parked.
func cutEverywhere(t *testing.T, size int, test func(*testing.T, *mockserver.Cut) *connections) {
	var whole *connections
	synctest.Test(t, func(t *testing.T) { whole = test(t, nil) })
	require.NotEmpty(t, whole.all)
	probe, err := codec.AppendProbe(nil, make([]byte, 16)) // if it is cut, it can leave a record
	require.NoError(t, err)
	for number, bytes := range whole.all[:min(2, len(whole.all))] {
		for _, d := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
			// After the probe, a QUERY and an UPDATE of the empty key keep the server parked, and WHOAMI
			// and two UNSUBSCRIBEs have it send no EVENTs.
			from := []int{len(probe) + 2 + 3 + 1 + 34 + 4 + size, codec.ProbeResponses + 2 + 2*size + 1 + 17 + 1 + 1}[d]
			require.Greater(t, bytes[d], from)
			t.Run(fmt.Sprintf("connection %d, %v", number, d), func(t *testing.T) {
				step := 1
				if testkit.Race {
					step = 5
				}
				for after := from; after < bytes[d]+20 && !t.Failed(); after += step {
					synctest.Test(t, func(t *testing.T) { test(t, &mockserver.Cut{Direction: d, After: after, Skip: number, Times: 1}) })
				}
			})
		}
	}
}

// A connection is cut at each byte in turn. Whatever a call returns is true of the count on the
// server.
func TestCutConnectionReportsWhetherHitsWereCounted(t *testing.T) {
	cutEverywhere(t, 2, testCutCalls)
}

// testCutCalls makes calls on a connection that is cut, unless c is nil.
func testCutCalls(t *testing.T, c *mockserver.Cut) *connections {
	ctx, what := t.Context(), fmt.Sprintf("%+v", c)
	srv, conns := testkit.InMemory(t), new(connections)
	other := testkit.Limiter[uint16](t, srv)
	synctest.Wait() // the server is parked
	if c != nil {
		srv.Cut(*c)
	}
	client, err := throttr.Connect[uint16](ctx, testkit.WithoutRetries(throttr.Config{
		Servers: []string{srv.Addr()}, Dial: conns.dial(srv), MaxConns: 1,
	}))
	require.NoError(t, err)
	defer client.Close()
	l := testkit.NewRateLimit(client.Backend())
	count := func(key string) uint64 {
		n, err := other.Get(ctx, key, time.Minute)
		require.NoError(t, err, what)
		return n
	}
	failures := 0
	// check makes a call. The count on the server must be want if it succeeds, unchanged if its
	// error says that it was not sent, and either of both, or 0, if it has another error.
	check := func(name, key string, call func(key string) error, want uint64) {
		before := count(key)
		err := call(key)
		after := count(key)
		switch {
		case err == nil:
			require.Equal(t, want, after, "%s, %s", what, name)
		case testkit.SafeToRetry(err):
			failures++
			require.Equal(t, before, after, "%s, %s: %v", what, name, err)
		default:
			failures++
			require.Contains(t, []uint64{0, before, want}, after, "%s, %s: %v", what, name, err)
		}
	}
	hit := func(key string) error { _, err := l.Hit(ctx, key, time.Minute, 10); return err }
	set := func(key string) error { _, err := l.Set(ctx, key, time.Minute, 7); return err }
	reset := func(key string) error { return l.Reset(ctx, key, time.Minute) }
	check("first hit", "k", hit, count("k")+1)
	check("second hit", "k", hit, count("k")+1)
	check("set", "k", set, 7)
	check("hit after set", "k", hit, count("k")+1)
	check("reset", "k", reset, 0)
	check("hit after reset", "k", hit, count("k")+1)
	check("hit of another key", "hit", hit, 1)
	check("set of another key", "set", set, 7)
	require.LessOrEqual(t, failures, 1, what)
	testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Minute))
	return conns
}

// Two clients open a window at the same time, and a connection of the second one is cut at each
// byte in turn.
func TestCutWhileTwoClientsOpenAWindow(t *testing.T) {
	cutEverywhere(t, 2, testCutOpening)
}

// testCutOpening lets two clients hit, one of which has a connection that is cut, unless c is nil.
func testCutOpening(t *testing.T, c *mockserver.Cut) *connections {
	what := fmt.Sprintf("%+v", c)
	var log history[uint16]
	srv, conns := testkit.InMemory(t, mockserver.WithObserver(log.observe)), new(connections)
	first := testkit.Limiter[uint16](t, srv)
	testkit.Hits(t, first, 1, "another", time.Minute, 10) // so that it has its connections
	if c != nil {
		srv.Cut(*c)
	}
	client, err := throttr.Connect[uint16](t.Context(), testkit.WithoutRetries(throttr.Config{
		Servers: []string{srv.Addr()}, Dial: conns.dial(srv), MaxConns: 1,
	}))
	require.NoError(t, err)
	defer client.Close()
	second := testkit.NewRateLimit(client.Backend())
	remove := srv.Inject(mockserver.Fault{Delay: time.Millisecond})
	var callers sync.WaitGroup
	callers.Go(func() { testkit.Hits(t, first, 1, "k", time.Minute, 10) })
	time.Sleep(100 * time.Microsecond)
	sent := uint64(0)
	for range 2 {
		_, err = second.Hit(t.Context(), "k", time.Minute, 10)
		k := log.of(modelKey{"k", time.Minute})
		if err == nil {
			sent++
			continue
		}
		callers.Wait()
		count := uint64(0)
		for _, w := range k.windows {
			count += w.count
		}
		if testkit.SafeToRetry(err) {
			require.Equal(t, 1+sent, count, "%s: %v", what, err)
		}
		sent = count - 1
	}
	callers.Wait()
	remove()
	k := log.of(modelKey{"k", time.Minute})
	require.Empty(t, k.errors, what)
	require.Len(t, k.windows, 1, what)
	require.Equal(t, 1+sent, k.windows[0].count, what)
	testkit.RequireRemoved(t, srv, testkit.Idle[uint16](t, time.Minute))
	return conns
}
