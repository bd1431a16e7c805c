package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// inMemory starts a server that is reached by its Dial method only, so that the test can run in a
// bubble of synctest.
func inMemory(t testing.TB, opts ...mockserver.Option) *mockserver.Server {
	t.Helper()
	return mockserver.RunT(t, append(opts, mockserver.WithAddr("memory", "memory:1"))...)
}

// requests counts the requests about records of windows.
type requests struct {
	mu    sync.Mutex // guards count
	count map[codec.Op]int
}

// observed starts a server whose requests about windows are counted.
func observed(t testing.TB, opts ...mockserver.Option) (*mockserver.Server, *requests) {
	t.Helper()
	r := &requests{}
	r.take()
	return inMemory(t, append(opts, mockserver.WithObserver(r.observe))...), r
}

func (r *requests) observe(e mockserver.Exec) {
	if _, ok := ParseName([]byte(e.Key)); !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[e.Op]++
}

// take returns the numbers of requests since the last take.
func (r *requests) take() map[codec.Op]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := r.count
	r.count = make(map[codec.Op]int)
	return count
}

// gate connects to a server. A test can make it fail.
type gate struct {
	srv  *mockserver.Server
	shut atomic.Bool
}

var errShut = errors.New("the gate is shut")

func (g *gate) dial(ctx context.Context) (net.Conn, error) {
	if g.shut.Load() {
		return nil, errShut
	}
	return g.srv.Dial(ctx)
}

// newPool returns a pool of connections to one server, which does not retry.
func newPool(t testing.TB, calls *conn.Calls, mode parking.Mode, d func(context.Context) (net.Conn, error)) *pool.Pool {
	t.Helper()
	p, err := pool.New(pool.Options{
		Server: "server:1", Address: dial.Address{Network: "tcp", Address: "server:1"},
		Dialer: &dial.Dialer{
			Timeout: 5 * time.Second,
			Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) },
		},
		Calls: calls, MaxConns: 4, MaxInFlight: 512, MaxQueued: 1 << 16, MaxRetries: -1, MaxResponse: 4 << 20,
		StallTimeout: 5 * time.Second, MaxConnAge: time.Hour, MaxConnIdle: 5 * time.Minute, HealthInterval: 30 * time.Second,
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Parking: mode, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// options returns settings for a backend on the given servers, without sweepers. The server of
// a key is given by its first byte.
func options(t testing.TB, servers ...*mockserver.Server) Options {
	t.Helper()
	size := 2
	if len(servers) > 0 {
		size = servers[0].ValueSize()
	}
	o := Options{
		Pick:       func(key string) int { return 0 },
		Calls:      conn.NewCalls(conn.SizeOf(size)),
		MaxWindows: 1 << 16, MaxQueued: 1024, MaxInFlight: 512, WithoutSweeper: true,
	}
	for _, s := range servers {
		o.Servers = append(o.Servers, newPool(t, o.Calls, parking.Never, s.Dial))
		o.Names = append(o.Names, fmt.Sprint("server", len(o.Names)))
	}
	if len(servers) > 1 {
		o.Pick = func(key string) int { return int(key[0]) % len(servers) }
	}
	return o
}

// start returns a backend that is closed when the test ends.
func start(t testing.TB, o Options) *Backend {
	b := New(o)
	t.Cleanup(b.Close)
	return b
}

// client returns a backend of its own for a server.
func client(t testing.TB, srv *mockserver.Server) *Backend {
	t.Helper()
	return start(t, options(t, srv))
}

// hits hits n times, one after the other, and returns how many hits were within the limit.
func hits(t testing.TB, b *Backend, n int, key string, l window.Limit) (allowed int) {
	t.Helper()
	for range n {
		w, _, err := b.Hit(t.Context(), key, l, 1)
		require.NoError(t, err)
		if !w.Refused && w.Count <= l.Max {
			allowed++
		}
	}
	return allowed
}

// counting is a Server that counts connections for calls that rest on others.
type counting struct {
	Server
	dedicated atomic.Int64
}

// Dedicated implements Server.
func (c *counting) Dedicated(ctx context.Context) (*conn.Conn, error) {
	c.dedicated.Add(1)
	return c.Server.Dedicated(ctx)
}

// windowKeys returns the names of all records of windows on a server.
func windowKeys(srv *mockserver.Server) (names []string) {
	for _, key := range srv.Keys() {
		if _, ok := ParseName([]byte(key)); ok {
			names = append(names, key)
		}
	}
	return names
}

// die ends all connections, and lets no other be made.
func (g *gate) die() {
	g.shut.Store(true)
	g.srv.Disconnect()
}

// fixed returns a limit with windows that open with the first hit.
func fixed(scale time.Duration, most uint64) window.Limit {
	return limitOf(window.FixedWindow, scale, most)
}

func limitOf(a window.Algorithm, scale time.Duration, most uint64) window.Limit {
	return window.Limit{Max: most, Scale: scale, Algorithm: a}
}
