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
// (H16). Over a socket, only the responses to what was read last from such a connection count. There are at most
// 40,960: a real server looks through no more.
//
// Connections that the server ends itself, by [Server.Disconnect] or [Cut], do not count.
func (s *Server) Leaked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaked
}

// fail ends the connection after an error of a write that has accepted n bytes of c.frames. The caller
// holds c.sending.
func (c *conn) fail(n int, err error) {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	if errors.Is(err, errCut) {
		c.drop()
		return
	}
	unsent := len(c.sizes)
	for _, size := range c.sizes {
		if n -= size; n < 0 {
			break
		}
		unsent--
	}
	c.sent -= unsent
	c.leak(unsent)
	c.close()
}

// ended is called at the end of the reader goroutine, with the error that has ended the connection. If the client
// has, the responses that are still to be sent are lost: one that half-closes its connection loses them, too (H18).
func (c *conn) ended(err error) {
	reset := errors.Is(err, syscall.ECONNRESET) || wasReset(c.net)
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	if reset || c.closed || errors.Is(err, io.EOF) {
		unread := len(c.out)
		if reset {
			unread = max(unread, c.sent)
		}
		c.leak(unread)
		c.out = nil
		c.close()
	}
	c.leave()
	c.signal()
}

// leak counts responses that the client will not read. The caller holds Server.mu.
func (c *conn) leak(n int) {
	if !c.dropped {
		c.srv.leaked = min(c.srv.leaked+n, maxLeaked)
	}
}
