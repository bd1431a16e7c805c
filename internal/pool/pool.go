// Package pool keeps the connections to one server. Any number of callers share them.
//
//   - A call goes to the shared connection with the least load. If it fails, it is sent again if
//     that is safe. How these connections are made and shared is in shared.go. After a failed attempt to connect,
//     callers fail at once, and the pool tries again in the background. After a loss, the next caller has a connection
//     made. The pool notices if the server has locked up (lockup.go).
//   - Connections that are too old or idle are replaced or closed (maintenance.go).
//   - A request whose response can be of any length has a connection to itself.
//     Calls that depend on the responses to earlier ones have one that other callers do not share (unshared.go).
//   - If the server is parked, the pool keeps it parked (parking.go).
//
// H1 to H27 are hazards of servers, which docs/internals/protocol.md describes.
package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/window"
)

// Options are the settings of a Pool. All of them must be set, but Events and Go of the Target.
type Options struct {
	dial.Target

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
type Pool struct {
	o       Options
	log     *slog.Logger // has the name of the server
	parking *parking.Tracker

	counters                 conn.Counters
	dials, failures, retries atomic.Uint64
	waiting                  atomic.Int64 // callers that wait for a connection, or for a stream to end

	ctx        context.Context // ends when the pool is closed, while mu is held
	cancel     context.CancelFunc
	background sync.WaitGroup // the pool's goroutines, and connections that callers are making

	parkingDue chan struct{} // has an element if keepParked is to run
	connected  chan struct{} // closed when there is a first connection
	firstConn  sync.Once     // closes connected
	permits    chan struct{} // has an element for each stream that is open or being opened, these aside:
	listing    chan struct{} // has an element while a LIST or STATS of a caller is under way (H20)
	scanning   chan struct{} // has an element while Scan is under way

	puddle *puddle.Pool[*conn.Conn]
	// live are the shared connections that calls can be sent on. They are replaced with mu held and read without it.
	live atomic.Pointer[[]*puddle.Resource[*conn.Conn]]

	// mu guards the fields below.
	mu        sync.Mutex
	attempt   *attempt // to make a shared connection; nil if none is under way
	away      error    // see Err
	silence   silence
	noGrowth  time.Time               // until then, no connection is made beside others
	dedicated map[*conn.Conn]struct{} // those of Dedicated and of streams that have not ended
}

// New returns a Pool that has no connections yet.
func New(o Options) *Pool {
	p := &Pool{
		log:        o.Logger.With(slog.String("server", o.Server)),
		parkingDue: make(chan struct{}, 1), connected: make(chan struct{}),
		permits: make(chan struct{}, o.MaxConns), listing: make(chan struct{}, 1), scanning: make(chan struct{}, 1),
		dedicated: make(map[*conn.Conn]struct{}),
	}
	p.live.Store(new([]*puddle.Resource[*conn.Conn]))
	p.parking = parking.NewTracker(o.Parking, p.logParked)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	o.Events = &p.counters.Events
	o.Go = p.background.Go
	p.o = o
	p.puddle, _ = puddle.NewPool(&puddle.Config[*conn.Conn]{ // the only error is that of a MaxSize of 0
		Constructor: func(ctx context.Context) (*conn.Conn, error) { return p.connect(ctx, conn.Options{}) },
		Destructor:  p.destroy,
		MaxSize:     2 * int32(o.MaxConns), // retired connections count until they have ended
	})
	p.background.Go(p.maintain)
	return p
}

// isClosed reports whether the pool is closed. While mu is held, this does not change.
func (p *Pool) isClosed() bool { return p.ctx.Err() != nil }

// Logger returns Options.Logger, with the name of the server.
func (p *Pool) Logger() *slog.Logger { return p.log }

// Connected returns a channel that is closed when there has been a connection.
func (p *Pool) Connected() <-chan struct{} { return p.connected }

// Err returns the reason why calls fail at once: the last attempt to connect has failed, or is Start's first, and no
// other has succeeded. It returns nil if there is a connection, or if a call would make one.
func (p *Pool) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away
}

// beginOpening returns ctx, which then ends with the pool, too. Close waits for the call of end. It returns an error if
// the pool is closed.
func (p *Pool) beginOpening(ctx context.Context) (opening context.Context, end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed() {
		return nil, nil, window.ErrClosed
	}
	p.background.Add(1)
	opening, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.ctx, cancel)
	return opening, func() {
		stop()
		cancel()
		p.background.Done()
	}, nil
}

// open makes a network connection to the server and probes it. Events says that it is to receive
// EVENTs. When it returns, the server can be sent anything. The caller is between beginOpening and its end.
func (p *Pool) open(ctx context.Context, events bool) (*dial.Connection, error) {
	p.dials.Add(1)
	start := time.Now()
	c, err := dial.Connect(ctx, &p.o.Target, events)
	if errors.Is(err, codec.ErrMalformed) {
		err = fmt.Errorf("%w: %w", conn.ErrProtocol, err)
	}
	if err != nil && p.Parked() {
		p.keepParkedSoon() // the probe may have set the server's timer
	}
	if ctx.Err() == nil {
		if err != nil {
			p.failures.Add(1)
		}
		err = p.checkSilence(err, start)
	}
	if err != nil {
		return nil, err
	}
	if err := p.awaitStartUp(ctx, parking.Parks(c.ParkingRecord)); err != nil {
		c.Conn.Close()
		return nil, &dial.ConnectError{Server: p.o.Server, Err: err}
	}
	return c, nil
}

// connect makes a connection with the settings of the pool. For shared ones it is puddle's constructor, whose context
// puddle detaches from that of Acquire.
func (p *Pool) connect(ctx context.Context, o conn.Options) (*conn.Conn, error) {
	ctx, end, err := p.beginOpening(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	opened, err := p.open(ctx, o.OnEvent != nil)
	if err != nil {
		return nil, err
	}
	o.MaxInFlight = p.o.MaxInFlight
	o.MaxQueued = p.o.MaxQueued
	o.StallTimeout = p.o.StallTimeout
	o.Calls = p.o.Calls
	o.Counters = &p.counters
	o.ID = opened.ID
	o.OnEnd = p.ended
	c, err := p.serve(opened, o)
	if err != nil {
		return nil, err
	}
	if err := p.prepare(ctx, c, opened, o.OnEvent != nil); err != nil {
		if parking.Parks(opened.ParkingRecord) {
			p.keepParkedSoon() // an UPDATE may not have left
		}
		if ctx.Err() != nil {
			p.background.Go(func() { c.Close(window.ErrClosed) }) // the responses that are due are received
		} else {
			c.Cut(err) // which ended counts
			<-c.Done() // no EVENT follows
		}
		return nil, &dial.ConnectError{Server: p.o.Server, Err: err}
	}
	return c, nil
}

// serve makes a Conn of a network connection. Close ends it if it is dedicated.
func (p *Pool) serve(opened *dial.Connection, o conn.Options) (*conn.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed() {
		opened.Conn.Close()
		return nil, window.ErrClosed
	}
	c := conn.New(opened.Conn, opened.Early, o)
	if o.Abort || o.MaxPart > 0 {
		p.dedicated[c] = struct{}{} // before it can end
	}
	return c, nil
}

// prepare does what has to be done before any request of a caller: unless c is to receive EVENTs, it unsubscribes c
// from the channel of its own id (H21), and it has the server stay parked, or be parked if that is wanted, as the
// probe's INSERT may have set the server's timer.
func (p *Pool) prepare(ctx context.Context, c *conn.Conn, opened *dial.Connection, events bool) error {
	ctx, cancel := p.o.Dialer.Within(ctx)
	defer cancel()
	err := p.park(ctx, c, opened.ParkingRecord) // if it can't be parked, c is of use all the same
	if err == nil && !events {
		own := codec.Unsubscribe{Channel: []byte(opened.ID.String())}
		_, err = c.RoundTrip(ctx, func(cl *conn.Call) { conn.Add(cl, own) })
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// awaitStartUp waits until the server has been up for dial.StartUp, if it may have been restarted: there is no
// shared connection, and this is not the first attempt to make one. A server that is parked
// has been up for as long, because it starts without a record, and clients that park it wait first.
// Otherwise the time begins with the response to the probe: an INFO would tell more, but scans all
// records of a server that was not restarted (H24).
func (p *Pool) awaitStartUp(ctx context.Context, parked bool) error {
	if parked || p.dials.Load() == 1 || len(*p.live.Load()) > 0 {
		return nil
	}
	return outage.Sleep(ctx, dial.StartUp)
}

// ended is called when a connection has ended.
func (p *Pool) ended(c *conn.Conn, err error) {
	p.discard(c)
	if !errors.Is(err, conn.ErrGone) && !errors.Is(err, window.ErrClosed) { // a failure
		p.failures.Add(1)
		if p.Parked() {
			p.keepParkedSoon() // the connection may have ended between an INSERT and its UPDATE
		}
	}
}

// destroy is puddle's destructor. It waits for the end of a connection, which was lost or retired. When the pool is
// closed, destroy ends it.
func (p *Pool) destroy(c *conn.Conn) {
	select {
	case <-c.Done():
	case <-p.ctx.Done():
		c.Close(window.ErrClosed)
	}
}

// enterQueue counts a caller that is about to wait. It returns an error if as many wait already as are allowed to.
// The caller calls waiting.Add(-1) after its wait.
func (p *Pool) enterQueue() error {
	if p.waiting.Add(1) > int64(p.o.MaxQueued) {
		p.waiting.Add(-1)
		return window.ErrOverloaded
	}
	return nil
}

// Close ends all connections and waits until nothing of them is left. Calls and streams that
// are under way fail with [window.ErrClosed]. Closing again only waits.
func (p *Pool) Close() {
	p.mu.Lock()
	p.cancel()
	p.endAttempt(window.ErrClosed)
	live := p.live.Swap(new([]*puddle.Resource[*conn.Conn]))
	p.mu.Unlock()
	for _, r := range *live {
		r.Destroy()
	}
	for _, c := range p.allDedicated() {
		p.background.Go(func() { c.Close(window.ErrClosed) })
	}
	p.background.Wait()
	p.puddle.Close()
}
