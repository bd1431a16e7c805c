package mockserver

import "time"

// startUp is how long requests kill a real server after its start (H17).
const startUp = 40 * time.Millisecond

// startRequests is the largest number of requests that a connection may send then, for its probe.
const startRequests = 8

// checkStart checks the requests of a packet that c has sent. The caller holds s.mu.
func (s *Server) checkStart(c *conn, requests int, now uint64) {
	if !s.hazards[StartUp] || requests == 0 || c.gone || now-s.since >= uint64(startUp) {
		return
	}
	if c.reads++; c.reads > 1 || requests > startRequests {
		s.violate(c, breachf("H17", "%d requests in packet %d, %v after the start", requests, c.reads,
			time.Duration(now-s.since)))
	}
}

// scan makes the server look through all records once a minute (H24). The caller holds s.mu.
func (s *Server) scan(now uint64) {
	if minute := minuteOf(s.since, now); minute != s.scanned {
		s.scanned = minute
		s.thread.owe(s.costs.ofScan(len(s.store.records)))
	}
}
