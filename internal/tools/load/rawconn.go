package load

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// encodedOperations is the number of operations that a connection encodes in advance.
const encodedOperations = 1 << 12

// rawConn is a connection of a [Raw].
type rawConn struct {
	net.Conn
	frames   Frames
	depth    int    // operations outstanding
	requests []byte // encodedOperations of equal length, followed by the first depth of them again
	length   int    // of each

	sent    uint64 // operations
	buf     []byte // is read into
	partial int    // bytes of a response that is not complete

	// writes is a ring of the writes that have outstanding operations: the writes from number
	// complete up to number sentWrites, counted from 0. Write i is at index i modulo depth.
	writes               []rawWrite
	complete, sentWrites int
}

// rawWrite is one write to a connection.
type rawWrite struct {
	operations int // outstanding
	at         time.Duration
}

// newRawConn encodes operations for connection number i.
func newRawConn(nc net.Conn, frames Frames, depth int, keys KeySet, i int) *rawConn {
	c := &rawConn{
		Conn: nc, frames: frames, depth: depth,
		buf: make([]byte, 64<<10), writes: make([]rawWrite, depth),
	}
	all := keys.Keys()
	for n := range uint64(encodedOperations) {
		c.requests = frames.Append(c.requests, []byte(all.Pick(i, n)))
	}
	c.length = len(c.requests) / encodedOperations
	c.requests = append(c.requests, c.requests[:depth*c.length]...)
	return c
}

// run keeps depth operations outstanding until m is over. Then it waits for the responses to
// the last ones.
func (c *rawConn) run(m *Meter) error {
	base := time.Now()
	outstanding := c.depth
	if err := c.send(c.depth, 0); err != nil {
		return err
	}
	for outstanding > 0 {
		n, err := c.receive()
		if err != nil {
			return err
		}
		outstanding -= n
		now := time.Since(base)
		c.count(m, n, now)
		if n > 0 && !m.Over() {
			if err := c.send(n, now); err != nil {
				return err
			}
			outstanding += n
		}
	}
	return nil
}

// send writes n operations, at most depth.
func (c *rawConn) send(n int, at time.Duration) error {
	start := int(c.sent%encodedOperations) * c.length
	p := c.requests[start : start+n*c.length]
	c.writes[c.sentWrites%c.depth] = rawWrite{n, at} // the ring has room: each write has an outstanding operation
	c.sentWrites++
	c.sent += uint64(n)
	_, err := c.Write(p)
	return err
}

// receive reads once and returns the number of operations that are complete now.
func (c *rawConn) receive() (n int, err error) {
	read, err := c.Read(c.buf)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, fmt.Errorf("a response is missing: %w", err)
	case err != nil:
		return 0, err
	}
	size := c.frames.ResponseSize
	for i := (size - c.partial) % size; i < read; i += size {
		if c.buf[i] != 1 {
			return 0, fmt.Errorf("a response begins with 0x%02x: a record was made or removed by another client, or an EVENT was sent", c.buf[i])
		}
	}
	c.partial += read
	n = c.partial / size
	c.partial %= size
	return n, nil
}

// count adds n operations to m: those of the oldest writes.
func (c *rawConn) count(m *Meter, n int, now time.Duration) {
	for n > 0 {
		w := &c.writes[c.complete%c.depth]
		done := min(n, w.operations)
		m.Add(uint64(done), now-w.at)
		n -= done
		if w.operations -= done; w.operations == 0 {
			c.complete++
		}
	}
}
