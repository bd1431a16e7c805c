package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/load"
)

// rawSpread is how many operations a connection has encoded, on keys picked at random.
const rawSpread = 1 << 12

// rawConn is a connection of raw.
type rawConn struct {
	net.Conn
	operation rawOperation
	depth     int    // operations outstanding
	ring      []byte // rawSpread operations of equal length, and the first depth of them once more
	length    int    // of each
	fresh     bool   // each operation has the next of keys
	keys      keySet

	sent    uint64 // operations
	buf     []byte // that is read into
	partial int    // bytes of an answer that is not complete
	writes  []rawWrite
	// Of all writes ever, as many have been answered, and begun.
	answered, begun int
}

// rawWrite is what is outstanding of a write.
type rawWrite struct {
	operations int
	at         time.Duration
}

// dialRaw connects to a server.
func dialRaw(ctx context.Context, server string) (net.Conn, error) {
	network, address := "tcp", server
	if path, ok := strings.CutPrefix(server, "unix://"); ok {
		network, address = "unix", path
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// newRawConn encodes operations on keys for the connection of a number.
func newRawConn(nc net.Conn, operation rawOperation, depth int, keys keySet, number int) *rawConn {
	c := &rawConn{
		Conn: nc, operation: operation, depth: depth, keys: keys,
		buf: make([]byte, 64<<10), writes: make([]rawWrite, depth),
	}
	var key []byte
	for i := range rawSpread {
		key = keys.append(key[:0], pick(keys.n, number, uint64(i)))
		c.ring = operation.append(c.ring, key)
	}
	c.length = len(c.ring) / rawSpread
	c.ring = append(c.ring, c.ring[:depth*c.length]...)
	return c
}

// pump keeps depth operations outstanding until m is over, and then takes what is left of
// their answers.
func (c *rawConn) pump(m *load.Meter) error {
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
	start := int(c.sent%rawSpread) * c.length
	p := c.ring[start : start+n*c.length]
	if c.fresh {
		for i := range n {
			c.keys.number(p[:(i+1)*c.length], int(c.sent)+i)
		}
	}
	c.writes[c.begun%c.depth] = rawWrite{n, at} // all with something outstanding fit in
	c.begun++
	c.sent += uint64(n)
	_, err := c.Write(p)
	return err
}

// receive reads answers, and returns how many are complete now.
func (c *rawConn) receive() (n int, err error) {
	read, err := c.Read(c.buf)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, fmt.Errorf("an answer is missing: %w", err)
	case err != nil:
		return 0, err
	}
	size := c.operation.size
	for i := (size - c.partial) % size; i < read; i += size {
		if c.buf[i] != 1 {
			return 0, fmt.Errorf("an answer begins with 0x%02x: a record has gone or come meanwhile, or an EVENT was sent", c.buf[i])
		}
	}
	c.partial += read
	n = c.partial / size
	c.partial %= size
	return n, nil
}

// count tells m of n operations that have been answered.
func (c *rawConn) count(m *load.Meter, n int, now time.Duration) {
	for n > 0 {
		w := &c.writes[c.answered%c.depth]
		some := min(n, w.operations)
		m.Add(uint64(some), now-w.at)
		n -= some
		if w.operations -= some; w.operations == 0 {
			c.answered++
		}
	}
}
