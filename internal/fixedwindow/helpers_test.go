package fixedwindow

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/mockserver"
)

// inMemory starts a server that is reached by its Dial method only, so that the test can run
// in a bubble of synctest.
func inMemory(t testing.TB, opts ...mockserver.Option) *mockserver.Server {
	t.Helper()
	return mockserver.RunT(t, append(opts, mockserver.WithAddr("memory", "memory:1"))...)
}

// link is a Server with one connection, which it makes when it needs one. It does not retry.
type link[T codec.Value] struct {
	unswept
	dial     func(ctx context.Context) (net.Conn, error)
	calls    *conn.CallPool[T]
	counters conn.Counters

	lock chan struct{} // holds an element while conn is in use by nobody else
	conn *conn.Conn[T]
}

var errNoConnection = errors.New("no connection")

func newLink[T codec.Value](t testing.TB, calls *conn.CallPool[T], dial func(ctx context.Context) (net.Conn, error)) *link[T] {
	l := &link[T]{dial: dial, calls: calls, lock: make(chan struct{}, 1)}
	t.Cleanup(func() {
		l.lock <- struct{}{}
		if l.conn != nil {
			l.conn.Close(net.ErrClosed)
		}
	})
	return l
}

func (l *link[T]) connect(ctx context.Context) (*conn.Conn[T], error) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if l.conn != nil && l.conn.Err() == nil {
		return l.conn, nil
	}
	nc, err := l.dial(ctx)
	if err != nil {
		return nil, errors.Join(errNoConnection, err)
	}
	l.conn = conn.New(nc, nil, conn.Options[T]{
		MaxInFlight: 512, MaxQueued: 1 << 16, StallTimeout: 5 * time.Second,
		Calls: l.calls, Counters: &l.counters,
	})
	return l.conn, nil
}

// Do implements Server.
func (l *link[T]) Do(ctx context.Context, cl *conn.Call[T]) (done, sent bool, err error) {
	c, err := l.connect(ctx)
	if err != nil {
		return true, false, err
	}
	if err := c.Enqueue(cl, true); err != nil {
		return true, false, err
	}
	return cl.Wait(ctx)
}

// unswept completes a Server for backends that do not sweep.
type unswept struct{ parked bool }

func (unswept) Stream(context.Context, codec.Request, func([]byte) (int, bool, error)) (bool, error) {
	return false, errNoConnection
}
func (unswept) Park(context.Context) (bool, error) { return false, nil }
func (u unswept) Parked() bool                     { return u.parked }
func (unswept) Logger() *slog.Logger               { return slog.New(slog.DiscardHandler) }

// options returns settings for a backend on the given servers, without sweepers. The server of
// a key is given by its first byte.
func options[T codec.Value](t testing.TB, servers ...*mockserver.Server) Options[T] {
	o := Options[T]{
		Pick:  func(key string) int { return 0 },
		Calls: &conn.CallPool[T]{}, Now: time.Now,
		MaxWindows: 1024, MaxQueued: 1024, MaxInFlight: 512, WithoutSweeper: true,
	}
	for _, s := range servers {
		o.Servers = append(o.Servers, newLink(t, o.Calls, s.Dial))
	}
	if len(servers) > 1 {
		o.Pick = func(key string) int { return int(key[0]) % len(servers) }
	}
	return o
}

// start returns a backend that is closed when the test ends.
func start[T codec.Value](t testing.TB, o Options[T]) *Backend[T] {
	b := New(o)
	t.Cleanup(b.Close)
	return b
}

// hits hits n times, one after the other, and returns how many hits were within the limit.
func hits[T codec.Value](t testing.TB, b *Backend[T], n int, key string, scale time.Duration, limit uint64) (allowed int) {
	t.Helper()
	for range n {
		w, _, err := b.Hit(t.Context(), key, scale, limit, 1)
		require.NoError(t, err)
		if w.Count <= limit {
			allowed++
		}
	}
	return allowed
}
