package conn

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/throttr-go/throttr/codec"
)

// The write side decides which calls a write carries, and which goroutine writes:
//
//   - Calls are put in flight in the order in which their frames are written.
//   - A goroutine owns the write side from queue, await or accountForArrivals until gather finds
//     nothing to write, or until handOver. Only the owner gathers and writes.
//   - At most MaxInFlight requests are in flight, unless a single call has more of them.
//     Such a call is in flight by itself.
//   - If a call can be written, a goroutine owns the write side.

const (
	// writeSize is the number of bytes at which a write is large enough. Calls that are
	// queued wait for the next one.
	writeSize = 64 << 10
	// maxRounds is the number of writes after which a caller leaves the rest to the writer
	// goroutine, so that it does not write for other callers without end.
	maxRounds = 4
)

// writeOwner is the goroutine that owns the write side of a connection.
type writeOwner uint8

const (
	writeIdle      writeOwner = iota // none
	writeCaller                      // a caller, or who reads; its writes do not block
	writeGoroutine                   // the writer goroutine; it may not have noticed yet
)

// acquireWrite finds an owner for the write side if it has none. It returns true if this is
// the calling goroutine. It wakes the writer goroutine if writes may block. The caller holds mu.
func (c *Conn) acquireWrite() bool {
	if c.writeOwner != writeIdle {
		return false
	}
	if c.socket == nil {
		c.wakeWriter()
		return false
	}
	c.writeOwner = writeCaller
	return true
}

// wakeWriter gives the write side to the writer goroutine. The caller holds mu.
func (c *Conn) wakeWriter() {
	c.writeOwner = writeGoroutine
	c.ready.Signal()
}

// writeNonblocking writes what is queued as far as the socket accepts it at once. The
// writer goroutine writes the rest. The calling goroutine owns the write side.
func (c *Conn) writeNonblocking() {
	for range maxRounds {
		if !c.gather() {
			return
		}
		c.wrote(c.socket.write(c.rest))
		if len(c.rest) > 0 {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeWriter()
}

// writeLoop is the writer goroutine. It outlasts the reader goroutine and fails the calls that
// are left.
func (c *Conn) writeLoop() {
	for c.await() {
		// Callers that are about to queue a call can share the write. With 64 callers it
		// makes the writer goroutine seven times as fast.
		runtime.Gosched()
		for len(c.rest) > 0 || c.gather() {
			n, err := c.nc.Write(c.rest)
			c.wrote(n, err)
			if err != nil {
				break // wrote has called Cut, so await returns false
			}
		}
	}
	c.cleanUp()
}

// await returns true when the writer goroutine owns the write side, and false when there
// will be nothing to write any more and no goroutine is writing.
func (c *Conn) await() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.writeOwner == writeCaller: // wait until it hands over, or has nothing left to write
		case c.failure != nil, c.closeReason != nil && c.calls.Load() == 0:
			c.failure = cmp.Or(c.failure, c.closeReason)
			return false
		case c.writeOwner == writeGoroutine:
			return true
		}
		c.ready.Wait()
	}
}

// wrote accounts for a write of c.rest.
func (c *Conn) wrote(n int, err error) {
	c.rest = c.rest[n:]
	c.accepted += uint64(n)
	if err != nil {
		c.Cut(fmt.Errorf("%w: %w", ErrLost, err))
	}
}

// gather prepares the next write, and puts its calls in flight. If there is nothing to write, it returns false, and
// the write side has no owner any more.
func (c *Conn) gather() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cap(c.buf) > 4*writeSize { // after very large calls; their memory is not kept
		c.buf = nil
	}
	c.buf = c.buf[:0]
gathering:
	for c.failure == nil && c.queued.n > 0 && len(c.buf) < writeSize {
		cl := c.queued.first
		switch {
		case cl.isAbandoned():
			c.failQueued(nil)
		case !c.fits(cl):
			break gathering
		case cl.Stale != nil && cl.Stale():
			c.failQueued(ErrStale)
		case cl.markLaunched(): // it may have just been abandoned
			c.launch()
		}
	}
	c.rest = c.buf
	if len(c.buf) > 0 {
		c.watch()
		return true
	}
	c.writeOwner = writeIdle
	if c.failure != nil || c.closeReason != nil {
		c.ready.Signal()
	}
	return false
}

// fits reports whether a call may be put in flight now, behind what has been gathered. The caller holds mu.
func (c *Conn) fits(cl *Call) bool {
	switch {
	case c.inFlight() == 0:
		return true
	case c.inFlight()+cl.Len() > c.options.MaxInFlight:
		return false
	default:
		return !cl.SingleRead || c.inFlightBytes+len(cl.frames) <= codec.MaxFrame
	}
}

// launch puts the oldest queued call in flight, and appends its frames to the write. The caller holds mu.
func (c *Conn) launch() {
	cl := c.queued.pop()
	c.queuedRequests -= cl.Len()
	cl.offset, cl.before = c.offset, c.received
	c.offset += uint64(len(cl.frames))
	c.inFlightBytes += len(cl.frames)
	c.launched.push(cl)
	c.buf = append(c.buf, cl.frames...)
}

// accountForArrivals accounts for what the last read has brought. If calls are queued and no goroutine owns the write
// side, writes is true, and the calling goroutine owns it. The calling goroutine owns the read side.
func (c *Conn) accountForArrivals() (writes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.received = c.decoder.frames
	c.addLoad(-c.decoder.responses, -len(c.decoder.done)) // before a caller can call Load
	c.inFlightBytes -= c.decoder.bytes
	c.lastDone = len(c.decoder.done)
	c.processing = false
	c.silentQuarters = 0
	if c.closeReason != nil {
		c.ready.Signal()
	}
	return c.queued.n > 0 && c.acquireWrite()
}
