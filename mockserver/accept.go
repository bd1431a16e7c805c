package mockserver

import "net"

// HoldAccept makes the server accept no connections, as one that is busy with a long response, until
// it is called with false. Clients can connect meanwhile; they get no response. A connection that
// was reset by then is a [Violation] (H15).
func (s *Server) HoldAccept(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = on
	s.serveWaiting()
}

// arrival is a connection that waits to be served.
type arrival struct {
	net      net.Conn
	buffered bool
}

// admit takes a connection. It returns false if the server refuses connections. A
// buffered connection accepts a write before the client reads it.
func (s *Server) admit(nc net.Conn, buffered bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse || s.down || s.closed {
		return false
	}
	s.waiting = append(s.waiting, arrival{nc, buffered})
	s.serveWaiting()
	return true
}

// serveWaiting begins to serve the connections that wait, unless they are held. The caller holds s.mu.
func (s *Server) serveWaiting() {
	for len(s.waiting) > 0 && !s.hold {
		a := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.accepted++
		c := newConn(s, a.net, a.buffered, s.accepted)
		if wasReset(a.net) {
			s.violate(c, breachf("H15", "the connection was reset before it was accepted, which kills a real server"))
			continue
		}
		s.conns[c] = struct{}{}
		s.wg.Add(2)
		go c.read()
		go c.write()
	}
}

// dropWaiting closes the connections that wait. The caller holds s.mu.
func (s *Server) dropWaiting() {
	for _, a := range s.waiting {
		a.net.Close()
	}
	s.waiting = nil
}
