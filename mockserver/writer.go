package mockserver

import (
	"errors"
	"slices"
	"time"
)

// response is a frame for a client.
type response struct {
	frame []byte
	due   time.Time // when it may be sent; mostly zero

	record *record // whose TTL unit is in the frame; nil: none
	unitAt int     // where
}

// strayUnits are units that a real server has sent of records that were gone (H19).
var strayUnits = []byte{0, 32, 64, 80}

// write is the writer goroutine.
func (c *conn) write() {
	defer c.srv.forget(c)
	for c.flush() {
		<-c.wake
	}
}

// signal wakes the writer.
func (c *conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// flush sends all responses that are due, in one write unless others come meanwhile. It reports whether the
// connection goes on.
func (c *conn) flush() bool {
	c.sending.Lock()
	defer c.sending.Unlock()
	for c.take() {
		if n, err := c.send(c.frames); err != nil {
			c.fail(n, err)
			return false
		}
	}
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	return !c.closed && (!c.gone || len(c.out) > 0)
}

// take moves the responses that are due to c.frames, and reports whether there are any. They are not
// outstanding any more: how much of a write the client has read is unknown, and a client
// within the bound of H4 must not be accused of a violation. The caller holds c.sending.
func (c *conn) take() bool {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.frames = c.frames[:0]
	c.sizes = c.sizes[:0]
	if c.held {
		return false
	}
	for i, r := range c.out {
		if !r.due.IsZero() && time.Until(r.due) > 0 {
			break
		}
		if c.srv.hazards[StrayUnit] && r.record != nil && r.record.removed {
			r.frame[r.unitAt] = strayUnits[i%len(strayUnits)]
		}
		c.frames = append(c.frames, r.frame...)
		c.sizes = append(c.sizes, len(r.frame))
	}
	n := len(c.sizes)
	c.out = slices.Delete(c.out, 0, n)
	c.sent += n
	if len(c.out) == 0 {
		c.buf = c.buf[:0]
	}
	return n > 0
}

// errCut ends a connection because of a [Cut].
var errCut = errors.New("cut")

// send writes p, split and cut as tests demand. It returns how many bytes the connection has accepted. The caller
// holds c.sending.
func (c *conn) send(p []byte) (sent int, err error) {
	for sent < len(p) && err == nil {
		n := min(len(p)-sent, c.writeLeft)
		if split := int(c.srv.split.Load()); split > 0 {
			n = min(n, split)
		}
		if n == 0 {
			return sent, errCut
		}
		n, err = c.net.Write(p[sent : sent+n])
		sent += n
		c.writeLeft -= n
	}
	return sent, err
}
