package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/outage"
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

// pingKey is the key that Ping asks for. It is not expected to exist.
const pingKey = "throttr:ping"

// Options are the settings of a connection. OnEvent and OnEnd can be nil.
type Options[T codec.Value] struct {
	MaxInFlight  int           // requests in flight, at most; less than MaxOutstanding
	MaxQueued    int           // requests queued, at most; a single call may have more
	StallTimeout time.Duration // how long nothing may come while a response is due
	Calls        *CallPool[T]  // receives abandoned calls
	Counters     *Counters

	// Abort has Fail discard what the server's host has not acknowledged, if requests are in flight:
	// these bytes then never arrive.
	Abort bool

	// OnEvent receives the EVENTs, in order, and before callers have the responses that
	// came with them. An EVENT is valid until OnEvent returns. A connection with OnEvent
	// does without the check for H4. If OnEvent is nil, EVENTs are
	// dropped.
	OnEvent func(codec.Event[T])
	// OnEnd is called once, when all calls are done and the network connection is closed. It
	// must not call Close or wait for Done, which is closed after OnEnd has returned.
	OnEnd func(c *Conn[T], err error)
}

// Counters are what connections measure.
type Counters struct {
	Answered, Events atomic.Uint64
}

// Conn is a pipelined connection. It is safe for concurrent use.
type Conn[T codec.Value] struct {
	nc      net.Conn
	socket  *socket // of nc; nil if it can't read and write without blocking
	options Options[T]
	created time.Time

	queue    writeQueue[T]
	writer   writer[T]
	reader   responseReader[T]
	inline   inlineReader
	finisher finisher[T]

	readDone chan struct{} // closed when the reader goroutine has ended
	done     chan struct{} // closed when nothing of the connection is left
}

// New serves nc, which has passed the probe. The bytes in early came after the responses to
// the probe.
func New[T codec.Value](nc net.Conn, early []byte, o Options[T]) *Conn[T] {
	c := &Conn[T]{
		nc: nc, socket: newSocket(nc), options: o, created: time.Now(),
		readDone: make(chan struct{}), done: make(chan struct{}),
	}
	c.finisher.calls, c.finisher.answered = o.Calls, &o.Counters.Answered
	c.queue = writeQueue[T]{
		maxInFlight: o.MaxInFlight, maxQueued: o.MaxQueued,
		nonblocking: c.socket != nil,
		finisher:    &c.finisher,
		stall:       watchdog{timeout: o.StallTimeout, run: c.checkStall},
		since:       c.created,
	}
	c.queue.ready.L = &c.queue.mu
	c.writer = writer[T]{queue: &c.queue, nc: nc, socket: c.socket, fail: c.Fail}
	c.reader = responseReader[T]{
		fetch: c.queue.fetch, keepEvents: o.OnEvent != nil, eventCount: &o.Counters.Events,
		buf: make([]byte, max(readSize, len(early))),
	}
	copy(c.reader.buf, early)
	c.inline.wake, c.inline.watch.nc = make(chan struct{}, 1), nc
	go c.readLoop(len(early))
	go c.writeLoop()
	return c
}

// Enqueue queues a call, and writes it if no other goroutine is writing. On window.ErrOverloaded or
// ErrGone it still belongs to its caller. Waits says that the caller does nothing but Wait next;
// then it may read its response itself.
func (c *Conn[T]) Enqueue(cl *Call[T], waits bool) error {
	writes, busy, err := c.queue.push(cl)
	switch {
	case err != nil:
		return err
	case !writes || busy || !waits:
		c.inline.recall() // the reader goroutine reads the response
	case c.inline.acquire():
		cl.inline = c // Wait reads the response
		if err := c.checkOpen(); err != nil {
			c.Fail(err) // gather launches nothing then, and drain fails cl, which was not sent
		}
	}
	if writes {
		if busy {
			// Callers that are about to queue a call can share the write. With 64 callers
			// it makes callers that share writes three times as fast.
			runtime.Gosched()
		}
		c.writer.writeNonblocking()
	}
	return nil
}

// writeLoop is the writer goroutine. It outlasts the reader goroutine and fails the calls that
// are left.
func (c *Conn[T]) writeLoop() {
	c.writer.writeBlocking()
	// If there is a reason already, this does nothing. Otherwise the connection was retired or closed, and has
	// no calls left.
	c.Fail(c.queue.closingReason())
	<-c.readDone
	c.queue.drain(&c.reader.expected, c.writer.accepted)
	if c.options.OnEnd != nil {
		c.options.OnEnd(c, c.Err())
	}
	close(c.done)
}

// readLoop is the reader goroutine. Early is how many bytes the buffer begins with.
func (c *Conn[T]) readLoop(early int) {
	defer close(c.readDone)
	defer c.inline.watch.forget()
	err := c.received(early)
	for err == nil {
		if c.lone() {
			c.releaseRead()
			c.inline.await()
		}
		if c.reader.arrived.calls > 1 {
			// The callers can queue their next calls, and the server can respond, before
			// this goroutine sleeps. With 64 and with 512 callers it makes
			// callers that share writes a fifth faster.
			runtime.Gosched()
		}
		err = c.receive()
	}
	c.Fail(err)
}

// lone reports whether the next caller is likely to be alone, so that it can read its own response:
// the last read has completed one call, and no other is queued or in flight. The calling goroutine
// owns the read side.
func (c *Conn[T]) lone() bool {
	return c.socket != nil && c.options.OnEvent == nil &&
		c.reader.arrived.calls == 1 && c.queue.quiet()
}

// readInline reads on behalf of a caller, which owns the read side, until its call is done
// or ctx ends.
func (c *Conn[T]) readInline(ctx context.Context, cl *Call[T]) {
	c.inline.watch.start(ctx)
	for !cl.isDone() && ctx.Err() == nil {
		if err := c.receive(); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				c.Fail(err)
			}
			break
		}
	}
	c.inline.watch.stop(ctx)
	c.releaseRead()
}

// releaseRead ends the calling goroutine's ownership of the read side. If a response is due, the reader
// goroutine becomes the owner.
func (c *Conn[T]) releaseRead() {
	partial := c.reader.partial()
	c.inline.release()
	if partial || !c.queue.quiet() {
		c.inline.recall()
	}
}

// checkOpen reads what there is, so that the end of the connection is noticed although nobody has
// read for a while. It does nothing if the last check is recent. The calling goroutine owns the
// read side.
func (c *Conn[T]) checkOpen() error {
	if !c.inline.checkOpenDue() {
		return nil
	}
	n, err := c.socket.read(c.reader.space())
	switch {
	case n > 0:
		return c.received(n)
	case err != nil:
		return c.reader.lossError(err)
	default:
		return nil
	}
}

// receive reads once and processes what comes. The calling goroutine owns the read side.
func (c *Conn[T]) receive() error {
	n, err := c.nc.Read(c.reader.space())
	if n == 0 && err != nil {
		return c.reader.lossError(err)
	}
	return c.received(n)
}

// received processes n bytes that have been read.
func (c *Conn[T]) received(n int) error {
	err := c.reader.decode(n)
	if err != nil {
		c.Fail(err) // before callers send their calls again
	}
	writes := c.queue.accountFor(c.reader.arrived)
	for _, e := range c.reader.events {
		c.options.OnEvent(e)
	}
	c.finisher.finish(c.reader.done...)
	if writes {
		c.writer.writeNonblocking()
	}
	return err
}

// checkStall is what the timer of the watchdog runs.
func (c *Conn[T]) checkStall() {
	if stalled, n := c.queue.stalled(); stalled {
		c.Fail(fmt.Errorf("%w: no byte for %v with %d requests outstanding", ErrStalled, c.options.StallTimeout, n))
	}
}

// Fail ends the connection at once. The first reason counts. The calls that are queued or in flight
// fail with it, soon after Fail has returned.
func (c *Conn[T]) Fail(reason error) {
	c.queue.close(reason)
	if inFlight, _ := c.queue.usage(); inFlight > 0 && c.options.Abort {
		abort(c.nc)
	}
	c.inline.recall()
	c.nc.Close()
}

// closeGrace is how long Close waits for the responses that are due.
const closeGrace = 250 * time.Millisecond

// Close ends the connection, and waits until nothing of it is left. The calls that are queued fail
// with the reason. The responses to those in flight are received first, for a quarter of a second at
// most: what a server can't send keeps its memory for good (H16).
func (c *Conn[T]) Close(reason error) {
	c.queue.closeWhenEmpty(reason)
	c.queue.failAllQueued(reason)
	defer time.AfterFunc(closeGrace, func() { c.Fail(reason) }).Stop()
	<-c.done
}

// Retire rejects further calls, and ends the connection when it has none left.
func (c *Conn[T]) Retire() { c.queue.closeWhenEmpty(ErrGone) }

// Done returns a channel that is closed when nothing of the connection is left.
func (c *Conn[T]) Done() <-chan struct{} { return c.done }

// Open reports whether the connection accepts calls.
func (c *Conn[T]) Open() bool { return c.queue.open() }

// Err returns why the connection has ended or fails, or nil.
func (c *Conn[T]) Err() error { return c.queue.reason() }

// Load returns the calls and requests that are queued or in flight.
func (c *Conn[T]) Load() Load { return c.finisher.load.get() }

// Usage returns how many requests are in flight, and how many are queued.
func (c *Conn[T]) Usage() (inFlight, queued int) { return c.queue.usage() }

// Created returns when New was called.
func (c *Conn[T]) Created() time.Time { return c.created }

// Idle returns for how long no call has been queued, Pings aside. It is exact only if it is
// called often.
func (c *Conn[T]) Idle() time.Duration { return c.queue.idleFor() }

// InlineReads returns how many callers have read their responses themselves.
func (c *Conn[T]) InlineReads() uint64 { return c.inline.reads.Load() }

// RoundTrip sends requests of the client itself in one call, and returns their responses. They do not
// count as a use of the connection. Sent reports whether they may have been executed despite an error.
//
// The watchdog does not notice a response that the server has dropped (H4) while EVENTs come. So the
// connection ends if there is no response for one and a half times StallTimeout, before a later
// response can be taken for the one that was dropped.
func (c *Conn[T]) RoundTrip(ctx context.Context,
	requests ...codec.Request) (responses []Response[T], sent bool, err error) {
	cl := c.options.Calls.Get()
	cl.Unasked = true
	for _, r := range requests {
		if err := Add(cl, r); err != nil {
			return nil, false, err
		}
	}
	if err := c.Enqueue(cl, false); err != nil {
		return nil, false, err
	}
	timeout := c.options.StallTimeout
	timeout += min(timeout/2, math.MaxInt64-timeout)
	overdue := fmt.Errorf("%w: no response for %v", ErrStalled, timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, overdue)
	defer cancel()
	done, sent, err := cl.Wait(ctx)
	if !done {
		if context.Cause(ctx) == overdue {
			err = overdue
			c.Fail(err)
		}
		return nil, sent, err
	}
	responses = slices.Clone(cl.Responses)
	c.options.Calls.Put(cl)
	return responses, sent || err == nil, err
}

// Ping sends a QUERY, so that a server that has gone silent is noticed. It returns when the
// response has come or the connection has ended.
func (c *Conn[T]) Ping() error {
	_, _, err := c.RoundTrip(context.Background(), codec.Query{Key: []byte(pingKey)})
	return err
}

// abort has Close of a TCP connection discard what was not acknowledged, and send a reset. The
// server has responded on it before: a reset in place of its first request kills it (H15).
func abort(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}
