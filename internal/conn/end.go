package conn

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Fail ends the connection at once. The first reason counts. The calls that are queued or in flight
// fail with it, soon after Fail has returned.
func (c *Conn) Fail(reason error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = reason
	}
	discard := c.options.Abort && c.inFlight > 0
	c.ready.Signal()
	c.mu.Unlock()
	if discard {
		abort(c.nc)
	}
	c.turn.recall()
	c.nc.Close()
}

// CloseGrace is how long a connection that is not needed any more stays open for the responses that are due: what a
// server can't send keeps its memory for good (H16).
const CloseGrace = 250 * time.Millisecond

// Close ends the connection, and waits until nothing of it is left. The calls that are queued fail
// with the reason. The responses to those in flight are received first, for CloseGrace at most.
func (c *Conn) Close(reason error) {
	c.mu.Lock()
	c.closeReason = reason // though the connection may have been retired
	c.failAllQueued(reason)
	c.ready.Signal()
	c.mu.Unlock()
	defer time.AfterFunc(CloseGrace, func() { c.Fail(reason) }).Stop()
	<-c.done
}

// Retire rejects further calls, and ends the connection when it has none left.
func (c *Conn) Retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeReason == nil {
		c.closeReason = ErrGone
	}
	c.ready.Signal()
}

// ended is the end of the writer goroutine: nothing is written any more.
func (c *Conn) ended() {
	c.mu.Lock()
	reason := c.closeReason
	c.mu.Unlock()
	c.Fail(reason) // does nothing if there is a reason already; otherwise no calls are left
	<-c.readDone
	c.failAll()
	if c.options.OnEnd != nil {
		c.options.OnEnd(c, c.Err())
	}
	close(c.done)
}

// failAll fails the calls that are left, when nobody reads or writes any more. A call in flight may have been
// executed if it begins within the bytes that the network has accepted in all.
func (c *Conn) failAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchdog.Stop()
	inFlight := &c.reader.expected
	inFlight.append(&c.launched)
	for inFlight.n > 0 {
		cl := inFlight.pop()
		c.failCall(cl, c.failure, cl.offset < c.accepted)
	}
	c.failAllQueued(c.failure)
	c.inFlight = 0
}

// failAllQueued fails the calls that are queued. The caller holds mu.
func (c *Conn) failAllQueued(reason error) {
	for c.queued.n > 0 {
		c.failQueued(reason)
	}
}

// stallChecks is how often the watchdog finds that nothing has come before the connection has stalled.
const stallChecks = 4

// watch has the watchdog run while responses are due, so that a request costs no timer. The caller holds mu.
func (c *Conn) watch() {
	if c.watching {
		return
	}
	c.watching = true
	c.progress = false
	c.silentChecks = 0
	c.watchdog.Reset(c.options.StallTimeout / stallChecks)
}

// checkStall is the watchdog. It ends the connection if responses are due and nothing has come for StallTimeout.
func (c *Conn) checkStall() {
	if n, stalled := c.stalled(); stalled {
		c.Fail(fmt.Errorf("%w: no byte for %v with %d requests outstanding", ErrStalled, c.options.StallTimeout, n))
	}
}

// stalled returns how many responses are due, and whether nothing has come for too long.
func (c *Conn) stalled() (due int, stalled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failure != nil || c.inFlight == 0:
		c.watching = false
		return 0, false
	case c.progress:
		c.progress = false
		c.silentChecks = 0
	default:
		c.silentChecks++
	}
	if c.silentChecks == stallChecks {
		return c.inFlight, true
	}
	c.watchdog.Reset(c.options.StallTimeout / stallChecks)
	return c.inFlight, false
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
