// Package pool keeps the connections to one server. Any number of callers share them.
//
//   - A call goes to the shared connection with the least load (shared.go). If it fails,
//     it is sent again if that is safe (call.go).
//   - After a failed attempt to connect, callers fail at once, and the pool tries again in the
//     background (start.go). After a loss, the next caller has a connection made. The pool notices if the server has locked up (lockup.go).
//   - Connections that are too old or idle are replaced or closed (maintenance.go).
//   - A request whose response can be of any length has a connection to itself (unshared.go, stream.go).
//     Calls that depend on the responses to earlier ones have one that other callers do not share.
//   - If the server is parked, the pool keeps it parked (parking.go).
//
// Puddle limits the number of connections, and makes and destroys them. It hands a resource to
// one user at a time. Here that user is the pool, which holds each connection from the moment
// it is made, shares it among all callers, and destroys it when it is lost, too old or idle.
package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/window"
)

// Options are the settings of a Pool. All of them must be set.
type Options[T codec.Value] struct {
	Server  string // what errors and Stats call the server
	Address dial.Address
	Dialer  *dial.Dialer
	Calls   *conn.CallPool[T]

	MaxConns    int // connections that callers share, and as many for streams
	MaxInFlight int // requests in flight per connection
	MaxQueued   int // requests queued per connection, and callers that wait for a connection
	MaxRetries  int // negative means none
	MaxResponse int // bytes of a stream's response that are held at a time

	StallTimeout   time.Duration
	MaxConnAge     time.Duration // negative means no limit
	MaxConnIdle    time.Duration // negative means no limit
	HealthInterval time.Duration // between two runs of the maintenance
	MinBackoff     time.Duration // the first pause after a failed attempt to connect
	MaxBackoff     time.Duration // the longest

	Parking parking.Mode
	Logger  *slog.Logger // logs what happens to the server
}

// Pool keeps the connections to one server. All methods are safe for concurrent use.
type Pool[T codec.Value] struct {
	o        Options[T]
	log      *slog.Logger // has the name of the server
	silence  silence
	waiters  waiters
	shared   shared[T]
	unshared unshared[T]
	keeper   keeper[T]

	counters                 conn.Counters
	dials, failures, retries atomic.Uint64

	cause            atomic.Pointer[error] // see Err
	target           dial.Target
	mayHaveRestarted atomic.Bool // the server: set by noteFailure and discard, until there is a shared connection

	ctx        context.Context // ends when the pool is closed
	cancel     context.CancelFunc
	background sync.WaitGroup // the pool's goroutines, and connections that callers are making
}

// New returns a Pool that has no connections yet.
func New[T codec.Value](o Options[T]) (*Pool[T], error) {
	p := &Pool[T]{
		o:       o,
		log:     o.Logger.With(slog.String("server", o.Server)),
		waiters: waiters{max: int64(o.MaxQueued)},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.shared.init(p); err != nil {
		p.cancel()
		return nil, err
	}
	p.unshared.init(p)
	p.keeper.init(p)
	p.target = dial.Target{
		Server: o.Server, Address: o.Address, Dialer: o.Dialer,
		Parking: p.keeper.tracker, Events: &p.counters.Events, AwaitStartUp: p.awaitStartUp, Go: p.background.Go,
	}
	p.background.Go(p.maintain)
	p.background.Go(p.keeper.run)
	return p, nil
}

// Logger returns Options.Logger, with the name of the server.
func (p *Pool[T]) Logger() *slog.Logger { return p.log }

// Server returns Options.Server.
func (p *Pool[T]) Server() string { return p.o.Server }

// Connect waits until there is a connection, and makes one if there is none.
func (p *Pool[T]) Connect(ctx context.Context) error {
	_, err := p.shared.acquire(ctx)
	return err
}

// beginOpening has Close wait for background.Done, or returns an error if the pool is closed.
func (p *Pool[T]) beginOpening() error {
	p.unshared.mu.Lock()
	defer p.unshared.mu.Unlock()
	if p.unshared.closed {
		return window.ErrClosed
	}
	p.background.Add(1)
	return nil
}

// open makes a network connection to the server and probes it. Events says that it is to receive
// EVENTs. The attempt ends with ctx, and with the pool. The caller is one of the pool's goroutines, or is
// between beginOpening and background.Done.
func (p *Pool[T]) open(ctx context.Context, events bool) (nc net.Conn, early []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	p.dials.Add(1)
	start := time.Now()
	nc, early, err = dial.Connect[T](ctx, &p.target, events)
	if errors.Is(err, codec.ErrMalformed) {
		err = fmt.Errorf("%w: %w", conn.ErrProtocol, err)
	}
	if err != nil && p.Parked() {
		p.keeper.soon() // the probe may have set the server's timer
	}
	if ctx.Err() == nil {
		var changed bool
		err, changed = p.silence.check(err, start, p.counters.Answered.Load()+p.counters.Events.Load())
		if changed {
			p.logLockedUp(errors.Is(err, ErrLockedUp))
		}
	}
	return nc, early, err
}

// newConn serves a connection that open has made, with the settings of the pool.
func (p *Pool[T]) newConn(nc net.Conn, early []byte, o conn.Options[T]) *conn.Conn[T] {
	o.MaxInFlight = p.o.MaxInFlight
	o.MaxQueued = p.o.MaxQueued
	o.StallTimeout = p.o.StallTimeout
	o.Calls = p.o.Calls
	o.Counters = &p.counters
	return conn.New(nc, early, o)
}

// Close ends all connections and waits until nothing of them is left. Calls and streams that
// are under way fail with [window.ErrClosed]. Closing again only waits.
func (p *Pool[T]) Close() {
	p.unshared.stop()
	p.shared.close()
	p.cancel()
	p.unshared.end()
	p.background.Wait()
	p.shared.puddle.Close()
}
