// Package pool keeps the connections to one server. Any number of callers share them.
//
//   - A call goes to the connection with the least load (growth.go). If it fails, it is sent again
//     if that is safe (call.go).
//   - While the server can't be reached, callers fail at once, and the pool tries again in the
//     background (breaker.go). It notices if the server has locked up (lockup.go).
//   - Connections that are too old or idle are replaced or closed (maintenance.go).
//   - A request whose response can be of any length has a connection to itself (stream.go). So do
//     calls that depend on the replies to earlier ones (dedicated.go).
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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/window"
)

// ErrUnavailable says that a server could not be reached a short time ago. The request was
// not sent by this attempt. The error also wraps the reason why the last attempt to connect
// failed.
var ErrUnavailable = dial.ErrUnavailable

// Options are the settings of a Pool. All of them must be set.
type Options[T codec.Value] struct {
	Server  string // what errors and Stats call the server
	Address dial.Address
	Dialer  *dial.Dialer
	Calls   *conn.CallPool[T]

	MaxConns    int // connections that callers share, and as many for streams
	MaxInFlight int // requests in flight per connection
	MaxQueued   int // requests queued per connection, and callers that wait for a connection
	CanaryEvery int // requests between two canary requests; 0 means no canary requests
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
//
// Invariants:
//   - At most one attempt to make a shared connection is under way, be it an attempt for
//     callers or one of the circuit breaker's.
//   - live has at most MaxConns connections, and one more while it replaces one that is too old.
//     Puddle may hold more: those that were retired and still have requests in flight.
//   - While the circuit is open, only the circuit breaker attempts to make shared connections.
//   - A connection in live has not ended, or is about to be discarded by its OnEnd.
//   - Once closed is true, live stays empty and streams are closed as they are made.
type Pool[T codec.Value] struct {
	o       Options[T]
	log     *slog.Logger // has the name of the server
	breaker breaker
	parking *parking.Tracker
	silence silence

	counters                 conn.Counters
	dials, failures, retries atomic.Uint64

	puddle     *puddle.Pool[*conn.Conn[T]]
	ctx        context.Context // ends when the pool is closed
	cancel     context.CancelFunc
	background sync.WaitGroup // the pool's goroutines, and streams that are being opened

	// conns are the connections of live. They are replaced with mu held and read without it.
	conns atomic.Pointer[[]*conn.Conn[T]]

	streamPlaces chan struct{} // has an element for each stream that is open or being opened

	// mu guards the fields below.
	mu        sync.Mutex
	closed    bool
	live      []*puddle.Resource[*conn.Conn[T]] // the connections that calls can be sent on
	attempt   *attempt                          // under way for callers; nil if there is none
	noGrowth  time.Time                         // until then, no connection is made beside others
	acquiring int                               // callers that wait for a connection or a stream's place
	streams   map[*stream[T]]struct{}
	dedicated map[*conn.Conn[T]]struct{} // those of Dedicated that have not ended
	keeping   bool                       // keepParked runs in the background
	keepDue   bool                       // keepParkedSoon was called since it began
}

// attempt is an attempt to make a connection. All callers that need one share it.
type attempt struct {
	growth bool          // there was a connection when it began
	done   chan struct{} // closed when err is set
	err    error
}

// New returns a Pool that has no connections yet.
func New[T codec.Value](o Options[T]) (*Pool[T], error) {
	p := &Pool[T]{
		o:            o,
		log:          o.Logger.With(slog.String("server", o.Server)),
		breaker:      breaker{minBackoff: o.MinBackoff, maxBackoff: o.MaxBackoff},
		parking:      parking.NewTracker(o.Parking),
		streamPlaces: make(chan struct{}, o.MaxConns),
		streams:      make(map[*stream[T]]struct{}),
		dedicated:    make(map[*conn.Conn[T]]struct{}),
	}
	p.parking.OnChange(p.logParked)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.setLive(nil)
	var err error
	p.puddle, err = puddle.NewPool(&puddle.Config[*conn.Conn[T]]{
		Constructor: p.construct,
		Destructor:  func(c *conn.Conn[T]) { c.Close(window.ErrClosed) },
		MaxSize:     2 * int32(o.MaxConns), // retired connections count until they have ended
	})
	if err != nil {
		p.cancel()
		return nil, err
	}
	p.background.Go(p.maintain)
	return p, nil
}

// Logger returns Options.Logger, with the name of the server.
func (p *Pool[T]) Logger() *slog.Logger { return p.log }

// Server returns Options.Server.
func (p *Pool[T]) Server() string { return p.o.Server }

// Connect waits until there is a connection, and makes one if there is none.
func (p *Pool[T]) Connect(ctx context.Context) error {
	_, err := p.acquire(ctx)
	return err
}

// Open makes a network connection to the server and probes it, see [dial.Connect]. The caller
// closes it, and reports its failure by CountFailure.
func (p *Pool[T]) Open(ctx context.Context) (nc net.Conn, early []byte, err error) {
	p.dials.Add(1)
	start := time.Now()
	nc, early, err = dial.Connect[T](ctx, p.o.Dialer, p.o.Server, p.o.Address, p.parking, &p.counters.Events)
	if errors.Is(err, codec.ErrMalformed) {
		err = fmt.Errorf("%w: %w", conn.ErrProtocol, err)
	}
	if err != nil && p.parking.Parked() {
		p.keepParkedSoon() // the probe may have set the server's timer
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

// construct makes a shared connection. It is puddle's constructor.
func (p *Pool[T]) construct(ctx context.Context) (*conn.Conn[T], error) {
	nc, early, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	return conn.New(nc, early, conn.Options[T]{
		MaxInFlight: p.o.MaxInFlight, MaxQueued: p.o.MaxQueued, CanaryEvery: p.o.CanaryEvery,
		StallTimeout: p.o.StallTimeout, Calls: p.o.Calls, Counters: &p.counters, OnEnd: p.ended,
	}), nil
}

// acquire returns the connection with the least load. If there is none, acquire waits for one
// to be made. If all of them are busy, acquire has another one made and does not wait for it.
func (p *Pool[T]) acquire(ctx context.Context) (*conn.Conn[T], error) {
	for {
		if c, grow := p.pick(); c != nil && !grow {
			return c, nil
		}
		c, a, err := p.connOrAttempt()
		if a == nil {
			return c, err
		}
		select {
		case <-a.done:
			if err = a.err; err == nil {
				err = ctx.Err() // both may have happened
			}
		case <-ctx.Done():
			err = ctx.Err()
		}
		p.stopAcquiring()
		if err != nil {
			return nil, err
		}
	}
}

// connOrAttempt returns a connection, or the attempt that the caller must wait for; then the
// caller counts as acquiring. It starts an attempt if one is needed.
func (p *Pool[T]) connOrAttempt() (*conn.Conn[T], *attempt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, window.ErrClosed
	}
	c, grow := p.pick()
	if c != nil {
		if grow {
			p.startGrowth()
		}
		return c, nil, nil
	}
	if err := p.breaker.err(); err != nil {
		return nil, nil, err
	}
	p.startAttempt(false)
	if !p.startAcquiring() {
		return nil, nil, window.ErrOverloaded
	}
	return nil, p.attempt, nil
}

// grow has another connection made, and does not wait for it.
func (p *Pool[T]) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.startGrowth()
	}
}

// startGrowth starts an attempt to make another connection beside those that exist, unless
// such an attempt has failed recently. The caller holds mu.
func (p *Pool[T]) startGrowth() {
	if !time.Now().Before(p.noGrowth) {
		p.startAttempt(true)
	}
}

// startAttempt starts an attempt, unless one is under way. Growth says that there is a
// connection. The caller holds mu.
func (p *Pool[T]) startAttempt(growth bool) {
	if p.attempt != nil {
		return
	}
	a := &attempt{growth: growth, done: make(chan struct{})}
	p.attempt = a
	p.background.Go(func() { p.run(a) })
}

// startAcquiring counts a caller that is about to wait. It returns false if as many wait
// already as are allowed to. The caller holds mu.
func (p *Pool[T]) startAcquiring() bool {
	if p.acquiring >= p.o.MaxQueued {
		return false
	}
	p.acquiring++
	return true
}

func (p *Pool[T]) stopAcquiring() {
	p.mu.Lock()
	p.acquiring--
	p.mu.Unlock()
}

// run makes an attempt. It does not depend on the context of the caller that needed it.
//
// A growth attempt that fails says nothing about the connections that exist, and so does not
// open the circuit. If they are gone meanwhile, the callers that wait try again.
func (p *Pool[T]) run(a *attempt) {
	err := p.connect()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempt = nil
	switch {
	case err == nil || p.closed:
	case a.growth:
		p.noGrowth = time.Now().Add(p.o.MaxBackoff)
		err = nil
	default:
		p.breaker.open(err)
		p.background.Go(func() { p.breaker.retry(p.ctx, p.connect) })
	}
	a.err = err
	close(a.done)
}

// connect has puddle make a connection, and adds it to live. It uses Acquire, which Close
// ends by way of p.ctx: puddle's Close hangs if it is called while a constructor that
// TryAcquire has started runs.
func (p *Pool[T]) connect() error { return p.admit(p.puddle.Acquire(p.ctx)) }

// admit adds a connection that was just made to live, or returns why that is not possible.
func (p *Pool[T]) admit(r *puddle.Resource[*conn.Conn[T]], err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		if r != nil {
			r.Destroy()
		}
		return window.ErrClosed
	}
	if err != nil {
		p.CountFailure()
		return err
	}
	if err := r.Value().Err(); err != nil { // it may have ended before it was in live
		r.Destroy()
		return &dial.ConnectError{Server: p.o.Server, Err: err}
	}
	p.setLive(append(p.live, r))
	return nil
}

// setLive replaces the connections that calls can be sent on. The caller holds mu.
func (p *Pool[T]) setLive(live []*puddle.Resource[*conn.Conn[T]]) {
	p.live = live
	conns := make([]*conn.Conn[T], len(live))
	for i, r := range live {
		conns[i] = r.Value()
	}
	p.conns.Store(&conns)
}

// ended is the OnEnd of shared connections.
func (p *Pool[T]) ended(c *conn.Conn[T], err error) {
	if !errors.Is(err, conn.ErrGone) && !errors.Is(err, window.ErrClosed) {
		p.CountFailure()
		if p.parking.Parked() {
			p.keepParkedSoon() // the connection may have ended between an INSERT and its UPDATE
		}
	}
	p.discard(c)
}

// discard removes c from live, and destroys it as soon as it has ended. It does nothing if c
// was discarded before.
func (p *Pool[T]) discard(c *conn.Conn[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.live, func(r *puddle.Resource[*conn.Conn[T]]) bool { return r.Value() == c })
	if i < 0 {
		return
	}
	r := p.live[i]
	p.setLive(slices.Delete(p.live, i, i+1))
	p.background.Go(func() {
		select {
		case <-c.Done():
		case <-p.ctx.Done():
		}
		r.Destroy()
	})
}

// Close ends all connections and waits until nothing of them is left. Calls and streams that
// are under way fail with [window.ErrClosed]. Closing again only waits.
func (p *Pool[T]) Close() {
	p.mu.Lock()
	p.closed = true
	live := p.live
	p.setLive(nil)
	p.mu.Unlock()
	p.cancel()
	p.endStreams()
	for _, c := range p.allDedicated() {
		c.Close(window.ErrClosed)
	}
	for _, r := range live {
		r.Destroy()
	}
	p.background.Wait()
	p.puddle.Close()
}
