package mockserver

import (
	"errors"
	"io"
	"syscall"
)

// maxLeaked is how many responses a real server looks through for each request at most.
const maxLeaked = 40_960

// Leaked returns how many responses were not read by the clients that had asked for them, before these
// ended their connections: a real server never gets their memory back, and becomes slower with each
// (H16). Over a socket, it is those of the last turn of each such connection.
//
// Connections that the server ends itself, by [Server.Disconnect] or [Cut], do not count.
func (s *Server) Leaked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaked
}

// clientEnded notes that the client has ended the connection, which is known from err, and drops the
// responses that are still to be sent: a client that half-closes its connection loses them, too (H18).
func (c *conn) clientEnded(err error) {
	reset := errors.Is(err, syscall.ECONNRESET)
	if !reset && !errors.Is(err, io.EOF) {
		return // the server has ended it
	}
	left := int64(c.out.drop())
	if reset || hasError(c.net) {
		left = max(left, c.turn.Load()-c.failed.Load())
	}
	c.failed.Add(left)
}
