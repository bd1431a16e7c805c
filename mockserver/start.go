package mockserver

import "time"

// startUp is how long requests kill a real server after its start (H17).
const startUp = 40 * time.Millisecond

// startRequests is the largest number of requests that a connection may send then, for its probe.
const startRequests = 8

// checkStart checks the requests of a packet that c has sent. The caller holds s.mu.
func (s *Server) checkStart(c *conn, requests int, now uint64) {
	if !s.hazards[StartUp] || c.gone || now-s.store.start >= uint64(startUp) {
		return
	}
	if c.packets++; c.packets > 1 || requests > startRequests {
		s.violate(c, breachf("H17", "%d requests in packet %d, %v after the start", requests, c.packets,
			time.Duration(now-s.store.start)))
	}
}
