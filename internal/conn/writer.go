package conn

import (
	"fmt"
	"runtime"

	"github.com/throttr-go/throttr/codec"
)

const (
	// writeSize is how many bytes one write gathers from waiting calls, about.
	writeSize = 64 << 10
	// aloneSize is how many bytes of calls that must be alone begin a write, at most.
	// They must reach the server in one packet: this fits any common MTU.
	aloneSize = 1400
	// directRounds is how many writes a caller makes for others before he waits for his
	// own answer.
	directRounds = 4
)

// pen says who writes to a connection.
type pen uint8

const (
	penFree   pen = iota
	penDirect     // a caller, or the reader, with writes that don't block
	penWriter     // the writer, or it is about to
)

// takePen returns whether whoever asks is to write what is queued, with writeDirect. It
// wakes the writer where writes may block. The mutex is held.
func (c *Conn[T]) takePen() bool {
	if c.pen != penFree {
		return false
	}
	if c.direct == nil {
		c.handPen()
		return false
	}
	c.pen = penDirect
	return true
}

// handPen has the writer write. The mutex is held.
func (c *Conn[T]) handPen() {
	c.pen = penWriter
	c.wake.Signal()
}

// writeDirect writes what is queued as far as the socket takes it without blocking, and
// gives the pen away: to the writer, where there is more.
func (c *Conn[T]) writeDirect() {
	for range directRounds {
		if !c.gather() {
			return
		}
		n, err := c.direct.write(c.buf)
		c.accepted = n
		if err != nil {
			c.Fail(fmt.Errorf("%w: %w", ErrLost, err))
		}
		if n < len(c.buf) {
			break
		}
	}
	c.mu.Lock()
	c.handPen()
	c.mu.Unlock()
}

// write is the writer.
func (c *Conn[T]) write() {
	for c.handed() {
		runtime.Gosched() // who is about to push can be in the same write
		for err := error(nil); err == nil && (c.accepted < len(c.buf) || c.gather()); {
			var n int
			n, err = c.nc.Write(c.buf[c.accepted:])
			c.accepted += n
			if err != nil {
				c.Fail(fmt.Errorf("%w: %w", ErrLost, err))
			}
		}
	}
	c.Fail(ErrGone) // where there was no other reason: the last call is done
	<-c.readDone
	c.settle()
	if c.o.OnEnd != nil {
		c.o.OnEnd(c, c.err)
	}
	close(c.done)
}

// handed waits until the writer has the pen. It returns false when nothing is to be written
// any more.
func (c *Conn[T]) handed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.pen == penDirect:
		case c.err != nil, c.retiring && c.inFlight == 0 && c.queue.Len() == 0:
			return false
		case c.pen == penWriter:
			return true
		}
		c.wake.Wait()
	}
}

// gather moves to flight the calls that may go, and puts their frames in buf. Where there
// are none, or the connection has ended, it gives the pen back and returns false.
func (c *Conn[T]) gather() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cap(c.buf) > 4*writeSize {
		c.buf = nil
	}
	buf := c.buf[:0]
	only := c.inFlight == 0 // so far, this write has nothing but calls that must be alone
	if c.fenceDue() {
		buf = c.fly(c.fence(), buf)
	}
	for c.err == nil && c.queue.Len() > 0 && len(buf) < writeSize {
		cl := c.queue.At(0)
		if !c.fits(cl, only, len(buf)) {
			break
		}
		c.queue.Pop()
		c.waiting -= len(cl.kinds)
		if !cl.claim() {
			c.recycle(cl)
			continue
		}
		only = only && cl.Atomicity == Exclusive
		if cl.Stale != nil && cl.Stale() {
			cl.err = ErrStale
			c.finish(cl)
			continue
		}
		c.sinceFence += len(cl.kinds)
		buf = c.fly(cl, buf)
	}
	if len(buf) == 0 {
		c.pen = penFree
		if c.err != nil || c.retiring {
			c.wake.Signal()
		}
		return false
	}
	c.buf, c.accepted = buf, 0
	c.round++
	c.stall.arm()
	return true
}

// fly puts a call in flight, and its frames behind those of the same write.
func (c *Conn[T]) fly(cl *Call[T], buf []byte) []byte {
	cl.round, cl.offset, cl.before = c.round+1, len(buf), c.frames
	c.flight.Push(cl)
	c.inFlight += len(cl.kinds)
	c.inFlightBytes += len(cl.frames)
	return append(buf, cl.frames...)
}

// fits reports whether a call may enter flight now, behind size bytes of the same
// write. One of more requests than may be in flight goes when nothing else is.
func (c *Conn[T]) fits(cl *Call[T], aloneSoFar bool, size int) bool {
	if c.inFlight > 0 && c.inFlight+len(cl.kinds) > c.o.MaxInFlight {
		return false
	}
	switch cl.Atomicity {
	case SingleRead:
		return c.inFlight == 0 || c.inFlightBytes+len(cl.frames) <= codec.MaxFrame
	case Exclusive:
		return aloneSoFar && (size == 0 || size+len(cl.frames) <= aloneSize)
	default:
		return true
	}
}
