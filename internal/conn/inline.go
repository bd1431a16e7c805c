package conn

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"
)

// A caller that has a connection to itself reads its own response. Otherwise the reader
// goroutine would have to be woken for the response, and the caller by the reader, which
// takes as long as a fast server takes to respond.

const (
	// inlineIdle is the interval of the checks whether callers still read. The read side stays
	// without an owner for one to two intervals after the last read. The end of the
	// connection may go unnoticed for this time.
	inlineIdle = 250 * time.Millisecond
	// checkOpenInterval is how old the last check that the connection is open may be when a caller becomes
	// the owner.
	checkOpenInterval = time.Millisecond
)

// The owners of the read side of a connection.
const (
	readGoroutine uint32 = iota // the reader goroutine
	readIdle                    // none: no response is due
	readCaller                  // a caller, which reads its own response
)

// readTurn decides which goroutine owns the read side of a connection, and thereby its
// responseDecoder: the reader goroutine, a caller, or nobody.
//
// No response is left unread. An owner first releases the read side, and then checks whether a
// response is due. A caller first queues its call, and then checks for an owner. So at least one of
// the two notices that the reader goroutine is needed, and recalls it. The reader goroutine does
// not end while a caller owns the read side.
//
// It has no mutex: all fields are safe for concurrent use.
type readTurn struct {
	owner atomic.Uint32
	taken atomic.Uint64 // how often a caller has become the owner
	wake  chan struct{} // gets an element when recall makes the reader goroutine the owner
	// interrupted gets an element when the deadline is set that ends the read of a caller, which removes both.
	interrupted chan struct{}
}

// acquire makes a caller the owner, if there is none.
func (r *readTurn) acquire() bool {
	if !r.owner.CompareAndSwap(readIdle, readCaller) {
		return false
	}
	r.taken.Add(1)
	return true
}

// release ends the ownership of the calling goroutine. If a response is due, this must then
// call recall.
func (r *readTurn) release() { r.owner.Store(readIdle) }

// recall makes the reader goroutine the owner, if there is none.
func (r *readTurn) recall() {
	if r.owner.Load() == readIdle && r.owner.CompareAndSwap(readIdle, readGoroutine) {
		select {
		case r.wake <- struct{}{}:
		default: // there is an element already
		}
	}
}

// await returns when the reader goroutine is the owner again. It becomes the owner by
// itself when no caller has read between two checks.
func (r *readTurn) await() {
	timer := time.NewTimer(inlineIdle)
	defer timer.Stop()
	for taken := r.taken.Load(); r.owner.Load() != readGoroutine; {
		select {
		case <-r.wake: // the element may be an old one
		case <-timer.C:
			if n := r.taken.Load(); n != taken {
				taken = n
			} else {
				r.owner.CompareAndSwap(readIdle, readGoroutine)
			}
			timer.Reset(inlineIdle)
		}
	}
}

// lone reports whether the next caller is likely to be alone, so that it can read its own response:
// the last read has completed one call, and no other is queued or in flight. The calling goroutine
// owns the read side.
func (c *Conn) lone() bool {
	return c.socket != nil && c.options.OnEvent == nil &&
		len(c.decoder.done) == 1 && c.quiet()
}

// quiet reports whether the connection is open and no call is queued or in flight.
func (c *Conn) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure == nil && c.calls.Load() == 0
}

// readInline reads on behalf of a caller, which owns the read side, until its call is done
// or ctx ends.
func (c *Conn) readInline(ctx context.Context, cl *Call) {
	var unregister func() bool
	if ctx.Done() != nil {
		unregister = context.AfterFunc(ctx, c.interrupt)
	}
	for !cl.isDone() && ctx.Err() == nil {
		if err := c.receive(c.nc.Read); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				c.Cut(err)
			}
			break
		}
	}
	if unregister != nil && !unregister() { // interrupt has begun
		<-c.readTurn.interrupted
		c.nc.SetReadDeadline(time.Time{})
	}
	c.releaseRead()
}

// releaseRead ends the calling goroutine's ownership of the read side. If a response is due, the reader
// goroutine becomes the owner.
func (c *Conn) releaseRead() {
	partial := c.decoder.partial()
	c.readTurn.release()
	if partial || !c.quiet() {
		c.readTurn.recall()
	}
}

// checkOpen reads what there is, so that the end of the connection is noticed although nobody has
// read for a while. It does nothing if the last check is recent. The calling goroutine owns the
// read side.
func (c *Conn) checkOpen() error {
	now := time.Now()
	if now.Sub(c.checkedOpen) < checkOpenInterval {
		return nil
	}
	c.checkedOpen = now
	return c.receive(c.socket.read)
}

// interrupt ends the read of an inline reader, whose context has ended.
func (c *Conn) interrupt() {
	c.nc.SetReadDeadline(time.Unix(1, 0))
	c.readTurn.interrupted <- struct{}{}
}
