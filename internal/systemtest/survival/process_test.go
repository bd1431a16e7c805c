// Package survival_test has processes die, and requires that servers with the collector of a real
// one neither lock up nor keep what the dead have left.
package survival_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var errKilled = errors.New("the process was killed")

// process is a process with one client and one backend. It has no network once it is killed.
type process[T codec.Value] struct {
	client  *throttr.Client[T]
	backend *throttr.ServerBackend
	limiter *throttr.RateLimit
	onList  atomic.Pointer[func()] // called when the process sends a LIST

	ctx  context.Context // ends when the process is killed
	kill context.CancelFunc
	work sync.WaitGroup
}

// start starts a process that ends with the test at the latest.
func start[T codec.Value](t *testing.T, srv *mockserver.Server, cfg throttr.Config, opts ...throttr.BackendOption) *process[T] {
	t.Helper()
	p := &process[T]{}
	p.ctx, p.kill = context.WithCancel(context.Background())
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if p.ctx.Err() != nil {
			return nil, errKilled
		}
		nc, err := srv.Dial(ctx)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(p.ctx, func() { nc.Close() })
		return &processConn{Conn: nc, onList: &p.onList, ctx: p.ctx}, nil
	}
	client, err := throttr.Connect[T](context.Background(), cfg)
	require.NoError(t, err)
	p.client, p.backend = client, client.Backend(opts...)
	p.limiter = testkit.NewRateLimit(p.backend)
	// What is left of a killed process has no way to the server. It ends.
	context.AfterFunc(p.ctx, func() { client.Close() })
	t.Cleanup(p.end)
	return p
}

// end kills the process and waits for what is left of it.
func (p *process[T]) end() {
	p.kill()
	p.work.Wait()
	p.client.Close()
}

// processConn is a connection of a process.
type processConn struct {
	net.Conn
	onList *atomic.Pointer[func()]
	ctx    context.Context
}

// Write implements [net.Conn].
func (c *processConn) Write(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, errKilled
	}
	n, err := c.Conn.Write(b)
	if f := c.onList.Load(); f != nil && len(b) <= 36 && codec.Op(b[len(b)-1]) == codec.OpList { // perhaps behind others
		(*f)()
	}
	return n, err
}

// hit hits random keys of a scale, about every pause, until the process is killed.
func (p *process[T]) hit(r *rand.Rand, keys []string, scale, pause time.Duration, limit uint64) {
	r = rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
	p.work.Go(func() {
		for p.ctx.Err() == nil {
			p.limiter.Hit(p.ctx, keys[r.IntN(len(keys))], scale, limit)
			time.Sleep(pause/2 + time.Duration(r.Int64N(int64(pause))))
		}
	})
}
