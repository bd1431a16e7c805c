package httplimit

import (
	"bufio"
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
	return &hijacked{conn, u.hold}, rw, nil
}

// hijacked is a connection that holds a place.
type hijacked struct {
	net.Conn
	hold *inflight.Hold
}

// Close closes the connection, and releases the place.
func (c *hijacked) Close() error {
	defer c.hold.Release()
	return c.Conn.Close()
}
