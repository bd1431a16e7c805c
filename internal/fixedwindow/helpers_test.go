package fixedwindow

import (
	"context"
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
	r := &requests{count: make(map[codec.Op]int)}
	return inMemory(t, append(opts, mockserver.WithObserver(func(e mockserver.Exec) {
		if _, ok := ParseName([]byte(e.Key)); ok {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.count[e.Op]++
		}
	}))...), r
}

// take returns the numbers of requests since the last take.
func (r *requests) take() map[codec.Op]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := r.count
	r.count = make(map[codec.Op]int)
	return count
}

// newPool returns a pool of connections to one server, which does not retry.
func newPool(t testing.TB, calls *conn.Calls, mode parking.Mode, d func(context.Context) (net.Conn, error)) *pool.Pool {
	t.Helper()
	p := pool.New(pool.Options{
		Target: dial.Target{Server: "server:1", Calls: calls, Dialer: &dial.Dialer{
			Timeout: 5 * time.Second,
			Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return d(ctx) },
		}},
		MaxConns: 4, MaxInFlight: 512, MaxQueued: 1 << 16, MaxRetries: -1, MaxResponse: 4 << 20,
		StallTimeout: 5 * time.Second, MaxConnAge: time.Hour, MaxConnIdle: 5 * time.Minute, HealthInterval: 30 * time.Second,
		MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, Parking: mode, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(p.Close)
	return p
}

// options returns settings for a backend on the given servers. The server of
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
		MaxWindows: 1 << 16, MaxQueued: 1024,
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

// open returns a backend that does not sweep.
func open(o Options) *Backend {
	b := newBackend(o)
	ended, end := context.WithCancel(context.Background())
	end()
	for _, j := range b.janitors {
		j.sweeper.Run(ended)
	}
	return b
}

// start is open for a backend that is closed when the test ends.
func start(t testing.TB, o Options) *Backend {
	b := open(o)
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

// taken makes a take that must be granted.
func taken(t testing.TB, b *Backend, key string, l window.Limit, n uint64) window.Window {
	t.Helper()
	w, _, err := b.Take(t.Context(), key, l, n)
	require.NoError(t, err)
	require.False(t, w.Refused, "%+v", w)
	return w
}

// countOf returns the count of the open window.
func countOf(t testing.TB, b *Backend, key string, l window.Limit) uint64 {
	t.Helper()
	w, _, err := b.Peek(t.Context(), key, l, 0)
	require.NoError(t, err)
	return w.Count
}

// hooked is a Server some of whose methods a test replaces.
type hooked struct {
	Server
	do        func(ctx context.Context, cl *conn.Call) (done, sent bool, err error)
	dedicated func(ctx context.Context) (*conn.Conn, error)

	counts atomic.Int64 // calls of two requests, which count hits in a known window
	reads  atomic.Int64 // other calls
}

// Do implements Server.
func (h *hooked) Do(ctx context.Context, cl *conn.Call) (done, sent bool, err error) {
	if cl.Len() == 2 {
		h.counts.Add(1)
	} else {
		h.reads.Add(1)
	}
	if h.do != nil {
		return h.do(ctx, cl)
	}
	return h.Server.Do(ctx, cl)
}

// Dedicated implements Server.
func (h *hooked) Dedicated(ctx context.Context) (*conn.Conn, error) {
	if h.dedicated != nil {
		return h.dedicated(ctx)
	}
	return h.Server.Dedicated(ctx)
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

// fixed returns a limit with windows that open with the first hit.
func fixed(scale time.Duration, most uint64) window.Limit {
	return window.Limit{Max: most, Scale: scale, Algorithm: window.FixedWindow}
}
