package mockserver

import (
	"slices"
	"sync"
	"time"
)

// outbox holds the responses of a connection that have not left yet.
type outbox struct {
	mu    sync.Mutex
	buf   []byte
	marks []mark // one for each response in buf
	ended bool   // no more will come
	wake  chan struct{}
}

// mark is a response's place in the outbox.
type mark struct {
	size int
	due  time.Time // it does not leave sooner; mostly zero
}

// push appends a response, and returns how many are outstanding.
func (o *outbox) push(frame []byte, due time.Time) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, frame...)
	o.marks = append(o.marks, mark{len(frame), due})
	return len(o.marks)
}

// clear drops the responses that have not left yet.
func (o *outbox) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf, o.marks = o.buf[:0], o.marks[:0]
}

// len returns how many responses have not left yet.
func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.marks)
}

// release lets the writer look at what was pushed.
func (o *outbox) release() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// finish makes the writer close the connection once all has left.
func (o *outbox) finish() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.release()
}

// take moves responses that are due to dst. Where there is none, it returns how
// long to wait for the first, or that no more will come. What is taken counts as
// gone: nobody can tell how much of a write the client has read, and one within the
// bound of H4 must never be accused.
func (o *outbox) take(dst []byte) (group []byte, wait time.Duration, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, size := 0, 0
	for n < len(o.marks) {
		m := o.marks[n]
		if !m.due.IsZero() {
			if wait = time.Until(m.due); wait > 0 {
				break
			}
		}
		n++
		size += m.size
	}
	dst = append(dst, o.buf[:size]...)
	o.buf = slices.Delete(o.buf, 0, size)
	o.marks = slices.Delete(o.marks, 0, n)
	return dst, wait, o.ended && len(o.marks) == 0
}

// write is the writer.
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

// flush sends all responses that are due, in one write as long as no others come
// meanwhile. It returns how long to wait for the next one, if there is one, or that no
// more will come; and whether the connection goes on. The caller holds c.sending.
func (c *conn) flush() (wait time.Duration, ended, ok bool) {
	for {
		c.group, wait, ended = c.out.take(c.group[:0])
		if len(c.group) == 0 {
			return wait, ended, true
		}
		if !c.send(c.group) {
			return 0, false, false
		}
	}
}

// send writes p, torn and cut as asked for. It reports whether the connection
// goes on.
func (c *conn) send(p []byte) bool {
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
			return false
		}
		if _, err := c.net.Write(p[:n]); err != nil {
			return false
		}
		p = p[n:]
	}
	return true
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
