package pool

// Stats describes a pool at one point in time. It converts to a throttr.ServerStats.
type Stats struct {
	Server    string
	Conns     int // open connections, with those of streams, without those of backends and retired ones
	InFlight  int // requests in flight on them, streams aside
	Waiting   int // requests that wait to be written on them
	Acquiring int // callers that wait for a connection, or for a stream to end

	Parked   bool // the server was parked when this was last seen
	LockedUp bool // the server has locked up and not responded since

	Err error // why calls fail at once, see Pool.Err

	Answered uint64 // responses received
	Events   uint64 // EVENT frames received
	Dials    uint64 // attempts to connect
	Failures uint64 // connections that could not be made or were lost
	Retries  uint64 // calls sent once more
}

// Stats returns what the pool is doing and what it has done.
func (p *Pool) Stats() Stats {
	s := Stats{
		Server:   p.o.Server,
		Answered: p.counters.Answered.Load(),
		Events:   p.counters.Events.Load(),
		Dials:    p.dials.Load(),
		Failures: p.failures.Load(),
		Retries:  p.retries.Load(),
		Parked:   p.Parked(),

		Acquiring: int(p.waiting.Load()),
		Conns:     len(p.permits) + len(p.listing) + len(p.scanning),
	}
	p.mu.Lock()
	s.LockedUp = p.silence.lockedUp
	s.Err = p.away
	p.mu.Unlock()
	for _, r := range *p.live.Load() {
		s.Conns++
		inFlight, queued := r.Value().Usage()
		s.InFlight += inFlight
		s.Waiting += queued
	}
	return s
}
