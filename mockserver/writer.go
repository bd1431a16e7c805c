package mockserver

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// outbox holds the responses of a connection that have not been sent yet.
type outbox struct {
	wake chan struct{} // has room for one signal to the writer

	mu    sync.Mutex // guards all below
	buf   []byte
	items []item // the responses in buf
	ended bool   // no more will come
	held  bool   // nothing is sent yet
}

// item is a response in an outbox.
type item struct {
	size int
	due  time.Time // when it may be sent; mostly zero

	record *record // whose TTL unit is in the response, if strays are on; nil: none
	unitAt int     // where
}

// strayUnits are units that a real server has sent of records that were gone (H19).
var strayUnits = []byte{0, 32, 64, 80}

// watch has the unit of the last response become a stray one if its record is removed before it is
// sent.
func (o *outbox) watch(r *record, unitAt int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.items); n > 0 {
		o.items[n-1].record, o.items[n-1].unitAt = r, unitAt
	}
}

// drop removes all responses, accepts no more, and returns how many there were.
func (o *outbox) drop() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.items)
	o.buf = o.buf[:0]
	o.items = o.items[:0]
	o.ended = true
	return n
}

// push appends a response, and returns how many are outstanding.
func (o *outbox) push(frame []byte, due time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, frame...)
	o.items = append(o.items, item{size: len(frame), due: due})
	return len(o.items)
}

// reverse reverses the order of the last n responses that have not been sent.
func (o *outbox) reverse(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	items := o.items[max(len(o.items)-n, 0):]
	var frames []byte
	end := len(o.buf)
	for _, it := range slices.Backward(items) {
		frames = append(frames, o.buf[end-it.size:end]...)
		end -= it.size
	}
	copy(o.buf[end:], frames)
	slices.Reverse(items)
}

// clear removes all responses.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf, o.items = o.buf[:0], o.items[:0]
}

// len returns how many responses are outstanding.
func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.items)
}

// hold makes the writer keep all responses, or stops that. The caller signals the writer.
func (o *outbox) hold(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = on
}

// signal wakes the writer.
func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// finish makes the writer close the connection once all responses are sent.
func (o *outbox) finish() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.signal()
}

// responses are frames that are sent at one time.
type responses struct {
	frames []byte
	sizes  []int // of each
}

// pop moves the responses that are due to r. If there are none, it returns how long
// to wait for the first, or that no more will come. Responses that were popped are not
// outstanding any more: how much of a write the client has read is unknown, and a client
// within the bound of H4 must not be accused of a violation.
func (o *outbox) pop(r *responses) (wait time.Duration, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.frames = r.frames[:0]
	r.sizes = r.sizes[:0]
	if o.held {
		return 0, false
	}
	n, size := 0, 0
	for n < len(o.items) {
		it := o.items[n]
		if !it.due.IsZero() {
			if wait = time.Until(it.due); wait > 0 {
				break
			}
		}
		n++
		if it.record != nil && it.record.removed.Load() {
			o.buf[size+it.unitAt] = strayUnits[n%len(strayUnits)]
		}
		size += it.size
		r.sizes = append(r.sizes, it.size)
	}
	r.frames = append(r.frames, o.buf[:size]...)
	o.buf = slices.Delete(o.buf, 0, size)
	o.items = slices.Delete(o.items, 0, n)
	return wait, o.ended && len(o.items) == 0
}

// write is the writer goroutine.
func (c *conn) write() {
	defer c.srv.wg.Done()
	defer c.srv.forget(c)
	defer c.close()
	for {
		c.sending.Lock()
		wait, ended, ok := c.flush()
		c.sending.Unlock()
		switch {
		case !ok, ended:
			return
		case wait > 0:
			if !c.sleep(wait) {
				return
			}
		default:
			select {
			case <-c.out.wake:
			case <-c.closed:
				return
			}
		}
	}
}

// flush sends all responses that are due, in one write unless others come meanwhile. It
// returns how long to wait for the next one, if there is one, or that no more will come;
// and whether the connection goes on. The caller holds c.sending.
func (c *conn) flush() (wait time.Duration, ended, ok bool) {
	for {
		wait, ended = c.out.pop(&c.sent)
		if len(c.sent.frames) == 0 {
			return wait, ended, true
		}
		c.turn.Add(int64(len(c.sent.sizes)))
		if sent, err := c.send(c.sent.frames); err != nil {
			if !errors.Is(err, errCut) {
				c.failed.Add(int64(c.unsent(sent)))
			}
			return 0, false, false
		}
	}
}

// unsent returns how many of the frames that were being sent did not fit into so many bytes.
func (c *conn) unsent(sent int) int {
	for i, size := range c.sent.sizes {
		if sent -= size; sent < 0 {
			return len(c.sent.sizes) - i
		}
	}
	return 0
}

// errCut ends a connection because of a [Cut].
var errCut = errors.New("cut")

// send writes p, split and cut as tests demand. It returns how many bytes the connection has accepted.
func (c *conn) send(p []byte) (sent int, err error) {
	for len(p) > 0 {
		n := len(p)
		if split := int(c.srv.split.Load()); split > 0 {
			n = min(n, split)
		}
		if c.writeLeft >= 0 {
			n = min(n, c.writeLeft)
			c.writeLeft -= n
		}
		if n == 0 {
			return sent, errCut
		}
		n, err := c.net.Write(p[:n])
		sent += n
		if err != nil {
			return sent, err
		}
		p = p[n:]
	}
	return sent, nil
}

// sleep waits, and reports whether the connection is still open.
func (c *conn) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.closed:
		return false
	}
}
