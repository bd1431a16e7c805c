package conn

import (
	"crypto/tls"
	"net"
)

// reset has Close of a TCP connection discard what was not acknowledged, and send a reset. The
// server has responded on it before: a reset in place of its first request kills it (H15).
func reset(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}
