package conn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

var (
	// ErrProtocol says that a server sent bytes that can't be a response.
	ErrProtocol error = outage.Error("throttr: protocol violation by the server")
	// ErrStalled says that requests were outstanding and no byte came for
	// Options.StallTimeout.
	ErrStalled error = outage.Error("throttr: server has stalled")
	// ErrLost says that the network ended a connection.
	ErrLost error = outage.Error("throttr: connection lost")
	// ErrGone says that a connection accepts no more calls.
	ErrGone = errors.New("throttr: connection is closing")
	// ErrStale says that a call was not sent because Call.Stale returned true.
	ErrStale = errors.New("throttr: the request waited to be sent for too long")
)

// PingKey is the key that pings ask for. Nobody uses it.
const PingKey = "throttr:ping"

// Options are the settings of a connection. OnEvent and OnEnd can be nil.
type Options struct {
	MaxInFlight  int           // requests in flight, at most; less than MaxOutstanding
	MaxQueued    int           // requests queued, at most, abandoned ones included; a single call may have more
	StallTimeout time.Duration // how long nothing may come while a response is due
	Calls        *Calls        // receives abandoned calls
	Counters     *Counters
	ID           codec.ConnID // what the server calls the connection
	MaxPart      int          // bytes of a response that Call.Decode can ask for at a time; 0 if no call has one

	// Abort has Cut discard what the server's host has not acknowledged, if requests are in flight:
	// these bytes then never arrive.
	Abort bool

	// OnEvent receives the EVENTs, in order, and before callers have the responses that
	// came with them. An EVENT is valid until OnEvent returns. A connection with OnEvent
	// does without the check for H4. If OnEvent is nil, EVENTs are
	// dropped.
	OnEvent func(Event)
	// OnEnd is called once, when all calls are done and the network connection is closed. It
	// must not call Close or wait for Done, which is closed after OnEnd has returned.
	OnEnd func(c *Conn, err error)
}

// Counters are what connections measure.
type Counters struct {
	Answered, Events atomic.Uint64
}

// Conn is a pipelined connection. It is safe for concurrent use.
type Conn struct {
	nc      net.Conn
	socket  *socket // of nc; nil if it can't read and write without blocking
	options Options
	created time.Time

	// requests and calls are the Load. They change while mu is held.
	requests, calls atomic.Int64

	done chan struct{} // closed when nothing of the connection is left

	// The read side: see inline.go for which goroutine owns it.
	readTurn    readTurn
	decoder     responseDecoder // the owner of the read side uses it
	checkedOpen time.Time       // when checkOpen last read; the owner of the read side uses it
	readDone    chan struct{}   // closed when the reader goroutine has ended

	// The write side: see write.go. These are for the goroutine that owns it.
	buf      []byte // the last write
	rest     []byte // the part of buf that the network has not accepted
	accepted uint64 // how many bytes the network has accepted in all

	// mu guards the fields below. Its holder does not block, and calls no code outside of the package, except for
	// Call.Stale.
	mu          sync.Mutex
	ready       sync.Cond // the writer goroutine waits on it
	writeOwner  writeOwner
	failure     error // why nothing is queued or written any more, or nil
	closeReason error // why nothing is queued any more, and what the reason will be when no call is left

	queued         callList // calls that wait to be written
	queuedRequests int      // requests of these
	launched       callList // calls in flight that the decoder does not expect yet
	inFlightBytes  int      // size of the calls in flight, each until its last response has come
	offset         uint64   // size of all calls that were ever put in flight
	received       uint64   // frames that the connection has received
	lastDone       int      // calls that the last read has completed
	processing     bool     // what the last read has brought is being decoded

	used bool      // a call was queued since Idle was last called, pings aside
	idle time.Time // when Idle last found that one was

	watchdog       *time.Timer // runs checkStall at the end of each quarter of StallTimeout
	watching       bool        // the watchdog is to run
	silentQuarters int         // in which no read has brought anything, in sequence, the current one included
}

// New serves nc, which has passed the probe. The bytes in early came after the responses to
// the probe.
func New(nc net.Conn, early []byte, o Options) *Conn {
	c := &Conn{
		nc: nc, socket: newSocket(nc), options: o, created: time.Now(),
		readDone: make(chan struct{}), done: make(chan struct{}),
	}
	c.idle = c.created
	c.ready.L = &c.mu
	c.watchdog = time.AfterFunc(math.MaxInt64, c.checkStall)
	c.decoder = responseDecoder{
		size: o.Calls.Size(), keepEvents: o.OnEvent != nil, maxPart: o.MaxPart, buf: make([]byte, max(readSize, len(early))),
	}
	copy(c.decoder.buf, early)
	c.readTurn.wake = make(chan struct{}, 1)
	c.readTurn.interrupted = make(chan struct{}, 1)
	go c.readLoop(len(early))
	go c.writeLoop()
	return c
}

// Enqueue queues a call, and writes it if no other goroutine is writing. On an error
// it still belongs to its caller, which otherwise does nothing but Wait next: it may have to read its response itself.
func (c *Conn) Enqueue(cl *Call) error {
	writes, busy, err := c.queue(cl)
	// The reader goroutine reads the response if others use the connection. Otherwise the caller does, unless the read
	// side has an owner already: that one reads the response, or has the reader goroutine do so.
	switch {
	case err != nil:
		return err
	case !writes || busy:
		c.readTurn.recall()
	case c.readTurn.acquire():
		cl.inline = true // Wait reads the response
		if err := c.checkOpen(); err != nil {
			c.Cut(err) // gather launches nothing then, and failAll fails cl, which was not sent
		}
	}
	if writes {
		if busy {
			// Callers that are about to queue a call can share the write. With 64 callers
			// it makes callers that share writes three times as fast.
			runtime.Gosched()
		}
		c.writeNonblocking()
	}
	return nil
}

// queue queues a call. If writes is true, the caller owns the write side. Busy reports
// whether other callers are using the connection now.
func (c *Conn) queue(cl *Call) (writes, busy bool, err error) {
	n := cl.Len()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case cl.invalid != nil:
		return false, false, cl.invalid
	case c.failure != nil || c.closeReason != nil:
		return false, false, ErrGone
	case c.queuedRequests > 0 && c.queuedRequests+n > c.options.MaxQueued:
		return false, false, window.ErrOverloaded
	}
	// If several calls were done at the same time, their callers are likely to make the next
	// ones at the same time.
	busy = c.calls.Load() > 0 || c.lastDone > 1
	cl.conn = c
	c.queued.push(cl)
	c.queuedRequests += n
	c.used = c.used || !cl.Unasked
	c.addLoad(n, 1)
	return c.acquireWrite(), busy, nil
}

// ID returns Options.ID.
func (c *Conn) ID() codec.ConnID { return c.options.ID }

// Done returns a channel that is closed when nothing of the connection is left.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Open reports whether the connection accepts calls.
func (c *Conn) Open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure == nil && c.closeReason == nil
}

// Err returns why the connection has ended or fails, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Usage returns how many requests are in flight, and how many are queued.
func (c *Conn) Usage() (inFlight, queued int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight(), c.queuedRequests
}

// inFlight returns how many requests that were put in flight have no response. The caller holds mu.
func (c *Conn) inFlight() int { return int(c.requests.Load()) - c.queuedRequests }

// Created returns when New was called.
func (c *Conn) Created() time.Time { return c.created }

// Load returns the calls and requests that are queued or in flight.
func (c *Conn) Load() Load { return Load{int(c.requests.Load()), int(c.calls.Load())} }

// addLoad changes the Load. The caller holds mu.
func (c *Conn) addLoad(requests, calls int) {
	c.requests.Add(int64(requests))
	c.calls.Add(int64(calls))
}

// Idle returns for how long no call has been queued, Pings aside. It is exact only if it is
// called often: the time begins when Idle first notices that there was a call, which thus need not read the clock.
func (c *Conn) Idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used {
		c.used = false
		c.idle = time.Now()
	}
	return time.Since(c.idle)
}

// RoundTrip sends requests of the client itself, which add adds to a call, and returns their responses. They do not
// count as a use of the connection. They may have been executed despite an error.
//
// The watchdog does not notice a response that the server has dropped (H4) while EVENTs come. So a
// connection with OnEvent ends if there is no response for one and a half times StallTimeout, before a
// later response can be taken for the one that was dropped. On others, a call can wait for longer until it is sent.
func (c *Conn) RoundTrip(ctx context.Context, add func(cl *Call)) (responses []Response, err error) {
	cl := c.options.Calls.Get()
	cl.Unasked = true
	add(cl)
	if err := c.Enqueue(cl); err != nil {
		return nil, err
	}
	timeout := c.options.StallTimeout
	timeout += min(timeout/2, math.MaxInt64-timeout)
	if c.options.OnEvent == nil {
		timeout = math.MaxInt64
	}
	overdue := fmt.Errorf("%w: no response for %v", ErrStalled, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, overdue)
	defer cancel()
	done, _, err := cl.Wait(ctx)
	if !done {
		if context.Cause(ctx) == overdue {
			err = overdue
			c.Cut(err)
		}
		return nil, err
	}
	responses = slices.Clone(cl.Responses)
	c.options.Calls.Put(cl)
	return responses, err
}

// Ping sends a QUERY, so that a server that has gone silent is noticed. It returns when the
// response has come, or the connection or ctx has ended.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.RoundTrip(ctx, func(cl *Call) { Add(cl, codec.Query{Key: []byte(PingKey)}) })
	return err
}

// Load is the work of a connection: the requests that are queued or in flight, and the
// calls that they belong to.
type Load struct{ Requests, Calls int }
