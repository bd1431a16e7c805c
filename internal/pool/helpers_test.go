package pool_test

import (
	"context"
	"errors"
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
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/mockserver"
)

// subject is a pool under test with short ways to make requests.
type subject struct {
	*pool.Pool
	t     testing.TB
	calls *conn.Calls
}

// dialFunc is how a test's pool makes network connections.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// to returns a dialFunc that connects to srv in memory.
func to(srv *mockserver.Server) dialFunc {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) }
}

// connect returns a pool that has a connection. Fields of o that are zero get the defaults of
// the root package. The pool is closed when the test ends, unless the test has closed it.
func connect(t testing.TB, d dialFunc, o pool.Options) subject {
	t.Helper()
	s := newPool(t, d, o)
	require.NoError(t, s.Connect(t.Context()))
	return s
}

// newPool is connect for a pool without a connection.
func newPool(t testing.TB, d dialFunc, o pool.Options) subject {
	t.Helper()
	s := subject{t: t, calls: conn.NewCalls(conn.SizeOf(2))}
	setDefault(&o.Server, "server:1")
	setDefault(&o.MaxConns, 4)
	setDefault(&o.MaxInFlight, 512)
	setDefault(&o.MaxQueued, 1<<16)
	setDefault(&o.MaxRetries, 2)
	setDefault(&o.MaxResponse, 4<<20)
	setDefault(&o.StallTimeout, 5*time.Second)
	setDefault(&o.MaxConnAge, time.Hour)
	setDefault(&o.MaxConnIdle, 5*time.Minute)
	setDefault(&o.HealthInterval, 30*time.Second)
	setDefault(&o.MinBackoff, 100*time.Millisecond)
	setDefault(&o.MaxBackoff, 500*time.Millisecond)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler))
	setDefault(&o.Dialer, &dial.Dialer{})
	setDefault(&o.Dialer.Timeout, 5*time.Second)
	o.Dialer.Dial = d
	o.Calls = s.calls
	s.Pool = pool.New(o)
	t.Cleanup(s.Close)
	return s
}

func setDefault[V comparable](field *V, value V) {
	var zero V
	if *field == zero {
		*field = value
	}
}

// result is the outcome of a call.
type result struct {
	response conn.Response
	sent     bool
	err      error
}

// do makes a request and returns its result.
func (s subject) do(ctx context.Context, r codec.Request) result {
	cl := s.calls.Get()
	if err := conn.Add(cl, r); err != nil {
		s.t.Error(err)
		return result{err: err}
	}
	done, sent, err := s.Do(ctx, cl)
	if !done {
		return result{sent: sent, err: err}
	}
	defer s.calls.Put(cl)
	if err != nil {
		return result{sent: sent, err: err}
	}
	return result{response: cl.Responses[0], sent: sent}
}

// queries returns how many QUERYs srv has executed for callers of the pool: a probe makes one
// of its own.
func (s subject) queries(srv *mockserver.Server) int {
	return srv.Requests(codec.OpQuery) - int(s.Stats().Dials)
}

// query is a request that only reads.
func (s subject) query(ctx context.Context, key string) result {
	return s.do(ctx, codec.Query{Key: []byte(key)})
}

// purge is a request that may change something.
func (s subject) purge(ctx context.Context, key string) result {
	return s.do(ctx, codec.Purge{Key: []byte(key)})
}

var errGate = errors.New("the gate is shut")

// gate is a server that can be made unreachable: then dialing hangs until its context ends, or
// fails.
type gate struct {
	srv  *mockserver.Server
	hang atomic.Bool
	fail atomic.Bool
}

func (g *gate) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if g.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if g.fail.Load() {
		return nil, errGate
	}
	return g.srv.Dial(ctx)
}

// lose ends the connections, and waits until the pool has seen it.
func (g *gate) lose() {
	g.srv.Disconnect()
	time.Sleep(2 * time.Second)
}

// start runs f in n goroutines. The returned function waits for them.
func (s subject) start(n int, f func(i int)) (wait func()) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	return all.Wait
}

// inParallel runs f in n goroutines and waits for them.
func (s subject) inParallel(n int, f func(i int)) { s.start(n, f)() }

// grow makes calls of many goroutines, which fill as many connections as the pool may have.
func (s subject) grow(srv *mockserver.Server) {
	defer srv.Inject(mockserver.Fault{Delay: time.Millisecond})()
	s.inParallel(100, func(int) {
		for range 10 {
			if err := s.query(s.t.Context(), "k").err; err != nil {
				s.t.Errorf("QUERY: %v", err)
			}
		}
	})
}
