package conn

import (
	"crypto/tls"
	"net"
	"time"
)

// Cut ends the connection at once. The first reason counts. The calls that are queued or in flight
// fail with it, soon after Cut has returned.
func (c *Conn) Cut(reason error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = reason
	}
	discard := c.options.Abort && c.inFlight() > 0
	c.ready.Signal()
	c.mu.Unlock()
	if discard {
		abort(c.nc)
	}
	c.readTurn.recall()
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
	defer time.AfterFunc(CloseGrace, func() { c.Cut(reason) }).Stop()
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

// cleanUp is the end of the writer goroutine: nothing is written any more.
func (c *Conn) cleanUp() {
	c.Cut(c.Err()) // which await has set if nothing has failed; then no calls are left
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
	expected := &c.decoder.expected
	expected.append(&c.launched)
	for expected.n > 0 {
		cl := expected.pop()
		c.failCall(cl, c.failure, cl.offset < c.accepted)
	}
	c.failAllQueued(c.failure)
}

// failAllQueued fails the calls that are queued. The caller holds mu.
func (c *Conn) failAllQueued(reason error) {
	for c.queued.n > 0 {
		c.failQueued(reason)
	}
}

// failQueued ends the oldest queued call, of which no byte has been sent. If it has been abandoned, nobody
// sees the reason. The caller holds mu.
func (c *Conn) failQueued(reason error) {
	cl := c.queued.pop()
	c.queuedRequests -= cl.Len()
	c.failCall(cl, reason, false)
}

// failCall ends a call without its responses. The caller holds mu.
func (c *Conn) failCall(cl *Call, reason error, sent bool) {
	cl.err, cl.sent = reason, sent
	c.addLoad(len(cl.Responses)-cl.Len(), -1)
	c.returnCall(cl)
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
