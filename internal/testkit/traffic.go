package testkit

import (
	"net"
	"sync/atomic"

	"github.com/throttr-go/throttr/mockserver"
)

// Traffic is how many bytes went over connections, by direction.
type Traffic [2]atomic.Int64

// Count returns nc, and counts its bytes.
func (t *Traffic) Count(nc net.Conn) net.Conn { return countedConn{nc, t} }

// countedConn is a connection whose bytes are counted.
type countedConn struct {
	net.Conn
	traffic *Traffic
}

// Read implements net.Conn.
func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic[mockserver.ToClient].Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic[mockserver.FromClient].Add(int64(n))
	return n, err
}
