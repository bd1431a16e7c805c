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

// ended is called at the end of the reader goroutine, after the connection has ended with err. The
// responses that are still to be sent are lost: a client that half-closes its connection loses them, too
// (H18).
func (c *conn) ended(err error) {
	reset := errors.Is(err, syscall.ECONNRESET) || wasReset(c.net)
	if reset || errors.Is(err, io.EOF) || c.failed.Load() > 0 {
		left := int64(c.out.drop())
		if reset {
			left = max(left, c.turn.Load()-c.failed.Load())
		}
		c.failed.Add(left)
		c.close()
	}
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.countUnread()
}

// countUnread counts the responses that could not be sent. The caller holds Server.mu.
func (c *conn) countUnread() {
	if unread := int(c.failed.Swap(0)); !c.dropped {
		c.srv.leaked = min(c.srv.leaked+unread, maxLeaked)
	}
}
