package throttr

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// writeSize is how many bytes one Write gathers from waiting calls, about.
	writeSize = 64 << 10
	// readSize is the size of the buffer that is read into.
	readSize = 16 << 10
	// aloneSize is how many bytes of calls that must be alone begin a Write, at most.
	// They must reach the server in one packet: this fits any common MTU.
	aloneSize = 1400
)

// errConnGone is what push returns of a connection that takes no more calls.
var errConnGone = errors.New("throttr: connection is closing")

// conn is one pipelined connection, shared by any number of callers. Responses
// carry no id: they match the requests by order alone, so the order in which
// calls enter flight is the order in which they are written.
//
// Two goroutines serve it. The writer moves calls from queue to flight and writes
// them, as many as there are in one Write. The reader decodes the answers of the
// calls in flight, oldest first, and frees their places. Once both have ended, the
// writer's fails what is left, each call once. A caller who leaves takes nothing
// away: the answer of an abandoned call is read and dropped.
type conn[T codec.Value] struct {
	nc     net.Conn
	server string
	cfg    *Config
	counts *counters
	calls  *sync.Pool // of *call[T]
	born   time.Time

	load atomic.Int64 // requests queued or in flight

	onEvent func(codec.Event[T]) // what the reader does with EVENTs; nil: it drops them
	events  []codec.Event[T]     // the reader's: those it has just decoded
	usage   usage

	mu            sync.Mutex
	wake          sync.Cond      // on mu: the writer waits here
	queue         fifo[*call[T]] // calls to be written
	waiting       int            // requests in queue
	flight        fifo[*call[T]] // calls written, or being written, and not yet answered
	inFlight      int            // requests in flight
	inFlightBytes int            // bytes of the calls in flight
	round         uint64         // how many writes there have been
	retiring      bool           // takes no more calls, and ends with the last one
	err           error          // why the connection ended

	readDone chan struct{} // closed when the reader has ended
	done     chan struct{} // closed when all is over
	stall    watchdog
}

// newConn serves nc. The bytes in early came after the handshake. When all is
// over, onEnd is called.
func newConn[T codec.Value](nc net.Conn, early []byte, p *pool[T]) *conn[T] {
	return newEventConn(nc, early, p, nil, p.dropped)
}

// newEventConn is newConn with a receiver of EVENTs: the reader calls it for each, in
// order, and before the callers have the answers that came with them. The EVENT is
// valid until it returns.
func newEventConn[T codec.Value](nc net.Conn, early []byte, p *pool[T], onEvent func(codec.Event[T]), onEnd func(*conn[T])) *conn[T] {
	c := &conn[T]{
		onEvent: onEvent,
		nc:      nc, server: p.server, cfg: p.cfg, counts: &p.counts, calls: p.calls, born: time.Now(),
		readDone: make(chan struct{}), done: make(chan struct{}),
	}
	c.usage.since = c.born
	c.wake.L = &c.mu
	c.stall.timeout, c.stall.look = p.cfg.StallTimeout, c.checkStall
	go c.read(early)
	go c.write(onEnd)
	return c
}

// push queues a call. It returns ErrOverloaded, or errConnGone; then the call is
// still its caller's.
func (c *conn[T]) push(cl *call[T]) error {
	n := len(cl.kinds)
	c.mu.Lock()
	if c.err != nil || c.retiring {
		c.mu.Unlock()
		return errConnGone
	}
	if c.waiting+n > c.cfg.MaxWaiting && c.waiting > 0 {
		c.mu.Unlock()
		return ErrOverloaded
	}
	c.queue.push(cl)
	c.waiting += n
	c.usage.pushes++
	c.load.Add(int64(n))
	c.mu.Unlock()
	c.wake.Signal()
	return nil
}

// write is the writer.
func (c *conn[T]) write(ended func(*conn[T])) {
	var buf []byte
	var refused uint64 // the round that failed
	accepted := 0      // bytes of it that were accepted
	for c.admit(&buf) {
		n, err := c.nc.Write(buf)
		if err != nil {
			refused, accepted = c.round, n
			c.fail(fmt.Errorf("%w: %w", ErrConnLost, err))
			break
		}
		if cap(buf) > 4*writeSize {
			buf = nil
		}
	}
	c.fail(errConnGone) // where there was no other reason: the last call is done
	<-c.readDone
	c.settle(refused, accepted)
	ended(c)
	close(c.done)
}

// admit waits for calls, moves to flight those that may go, and puts their frames
// in buf. It returns false when the connection has ended, or is to end.
func (c *conn[T]) admit(buf *[]byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := (*buf)[:0]
	for c.err == nil {
		only := c.inFlight == 0 // so far, this write has nothing but calls that must be alone
		for c.queue.len() > 0 && len(b) < writeSize {
			cl := c.queue.at(0)
			if !c.fits(cl, only, len(b)) {
				break
			}
			c.queue.pop()
			c.waiting -= len(cl.kinds)
			if !cl.claim() {
				c.recycle(cl)
				continue
			}
			only = only && cl.unity == alone
			cl.round, cl.offset = c.round+1, len(b)
			b = append(b, cl.frames...)
			c.flight.push(cl)
			c.inFlight += len(cl.kinds)
			c.inFlightBytes += len(cl.frames)
		}
		if len(b) > 0 {
			break
		}
		if c.retiring && c.inFlight == 0 && c.queue.len() == 0 {
			return false
		}
		c.wake.Wait()
	}
	if c.err != nil {
		return false
	}
	c.round++
	c.stall.arm()
	*buf = b
	return true
}

// fits reports whether a call may enter flight now, behind size bytes of the same
// write. One of more requests than may be in flight goes when nothing else is.
func (c *conn[T]) fits(cl *call[T], aloneSoFar bool, size int) bool {
	if c.inFlight > 0 && c.inFlight+len(cl.kinds) > c.cfg.MaxInFlight {
		return false
	}
	switch cl.unity {
	case whole:
		return c.inFlight == 0 || c.inFlightBytes+len(cl.frames) <= codec.MaxFrame
	case alone:
		return aloneSoFar && (size == 0 || size+len(cl.frames) <= aloneSize)
	default:
		return true
	}
}

// recycle puts away a call that its caller has abandoned.
func (c *conn[T]) recycle(cl *call[T]) {
	c.load.Add(-int64(len(cl.kinds)))
	c.calls.Put(cl)
}

// read is the reader.
func (c *conn[T]) read(early []byte) {
	defer close(c.readDone)
	buf := make([]byte, readSize)
	lo, hi := 0, copy(buf, early)
	var finished []*call[T]
	for {
		if hi > lo {
			n, err := c.deliver(buf[lo:hi], &finished)
			lo += n
			if err != nil {
				c.fail(err)
				return
			}
		}
		if lo == hi {
			lo, hi = 0, 0
		} else if len(buf)-hi < codec.MaxFrame {
			hi = copy(buf, buf[lo:hi])
			lo = 0
		}
		n, err := c.nc.Read(buf[hi:])
		hi += n
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) && hi > lo {
				err = io.ErrUnexpectedEOF
			}
			c.fail(fmt.Errorf("%w: %w", ErrConnLost, err))
			return
		}
	}
}

// deliver decodes the answers and EVENTs that src holds, hands finished calls
// back, and returns how many bytes it took.
func (c *conn[T]) deliver(src []byte, finished *[]*call[T]) (n int, err error) {
	done := (*finished)[:0]
	c.mu.Lock()
	for n < len(src) && err == nil {
		var size int
		if codec.Op(src[n]) == codec.OpEvent { // H8: an EVENT may come before any response
			var e codec.Event[T]
			if e, size, err = codec.DecodeEvent[T](src[n:]); err == nil {
				c.counts.events.Add(1)
				if c.onEvent != nil {
					c.events = append(c.events, e)
				}
			}
		} else if c.flight.len() == 0 {
			err = fmt.Errorf("byte 0x%02x came unasked", src[n])
		} else {
			var a answer[T]
			cl := c.flight.at(0)
			if a, size, err = decodeAnswer[T](cl.kinds[len(cl.answers)], src[n:]); err == nil {
				c.inFlight--
				if cl.answers = append(cl.answers, a); len(cl.answers) == len(cl.kinds) {
					done = append(done, c.flight.pop())
					c.inFlightBytes -= len(cl.frames)
				}
			}
		}
		n += size
	}
	c.stall.progress++
	c.mu.Unlock()
	c.wake.Signal()
	for _, e := range c.events {
		c.onEvent(e)
	}
	c.events = c.events[:0]
	for i, cl := range done {
		c.finish(cl)
		done[i] = nil
	}
	*finished = done
	if err != nil && !errors.Is(err, codec.ErrShort) {
		return n, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return n, nil
}

// finish hands a call that has left flight back to its caller, or recycles it.
func (c *conn[T]) finish(cl *call[T]) {
	c.load.Add(-int64(len(cl.kinds)))
	c.counts.answered.Add(uint64(len(cl.answers)))
	if !cl.finish() {
		c.calls.Put(cl)
	}
}

// fail ends the connection, for the first reason that it is called with.
func (c *conn[T]) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.wake.Signal()
	c.nc.Close()
}

// settle fails all calls that are left, once both loops have ended. A call was
// sent if a write has accepted a byte of it.
func (c *conn[T]) settle(refused uint64, accepted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall.stop()
	for c.flight.len() > 0 {
		cl := c.flight.pop()
		cl.err = c.err
		cl.sent = cl.round != refused || cl.offset < accepted
		c.finish(cl)
	}
	for c.queue.len() > 0 {
		cl := c.queue.pop()
		cl.err = c.err
		c.finish(cl)
	}
	c.inFlight, c.waiting = 0, 0
}

// retire lets no more calls in, and ends the connection when it has none left.
func (c *conn[T]) retire() {
	c.mu.Lock()
	c.retiring = true
	c.mu.Unlock()
	c.wake.Signal()
}

// failure returns why the connection ends, nil if it does not.
func (c *conn[T]) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// close ends the connection at once and waits until nothing of it is left.
func (c *conn[T]) close(reason error) {
	c.fail(reason)
	<-c.done
}
