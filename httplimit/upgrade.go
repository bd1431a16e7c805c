package httplimit

import (
	"bufio"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/throttr-go/throttr/inflight"
)

// upgrade is the ResponseWriter of a request that holds a place, and whose connection the handler may hijack: then
// the place is held until the connection is closed. Others are left as they are, with all methods that they have.
type upgrade struct {
	http.ResponseWriter
	hold     *inflight.Hold
	hijacked bool
	returned bool // the handler; otherwise it has panicked
}

// done is called when the handler has returned or panicked.
func (u *upgrade) done() {
	if !u.hijacked || !u.returned {
		u.hold.Release()
	}
}

// Unwrap returns the ResponseWriter that the server has made.
func (u *upgrade) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Flush implements [http.Flusher].
func (u *upgrade) Flush() { _ = http.NewResponseController(u.ResponseWriter).Flush() }

// Hijack implements [http.Hijacker].
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u.hijacked = true
	held := hijacked{conn, u.hold}
	switch c := conn.(type) {
	case *net.TCPConn:
		return &hijackedTCP{c, held}, rw, nil
	case *tls.Conn:
		return &hijackedTLS{c, held}, rw, nil
	case closeWriter: // such as a Unix socket
		return &hijackedHalf{held, c}, rw, nil
	}
	return &held, rw, nil
}

// hijacked is a connection that holds a place until it is closed.
type hijacked struct {
	net.Conn
	hold *inflight.Hold
}

// NetConn returns the connection without the place, as [tls.Conn.NetConn] does.
func (c *hijacked) NetConn() net.Conn { return c.Conn }

// Close closes the connection, and releases the place.
func (c *hijacked) Close() error {
	defer c.hold.Release()
	return c.Conn.Close()
}

// Handlers look for methods that net.Conn does not have, such as CloseWrite. So the connections that they know keep
// all of theirs.
type (
	hijackedTCP struct {
		*net.TCPConn
		held hijacked
	}
	hijackedTLS struct {
		*tls.Conn
		held hijacked
	}
	hijackedHalf struct {
		hijacked
		closeWriter
	}
	closeWriter interface{ CloseWrite() error }
)

// Close closes the connection, and releases the place.
func (c *hijackedTCP) Close() error { return c.held.Close() }

// Close closes the connection, and releases the place.
func (c *hijackedTLS) Close() error { return c.held.Close() }
