package throttr

import "sync/atomic"

// Stats is what a client has done since it was made, and what it is doing.
type Stats struct {
	Servers []ServerStats // in the order of Config.Servers

	Subscriptions int    // subscriptions that are open
	Dropped       uint64 // messages that found the queue of their subscription full
}

// ServerStats is the part of [Stats] that concerns one server.
type ServerStats struct {
	Server   string // as in Config.Servers
	Conns    int    // connections that are open, that of subscriptions included
	InFlight int    // requests that wait for their answer
	Waiting  int    // requests that wait to be sent

	Answered uint64 // responses received
	Events   uint64 // EVENT frames received
	Dials    uint64 // connections tried
	Failures uint64 // connections not made, or lost
	Retries  uint64 // requests sent once more
}

// counters are the numbers of ServerStats that only grow.
type counters struct {
	answered, events, dials, failures, retries atomic.Uint64
}

func (p *pool[T]) stats() ServerStats {
	s := ServerStats{
		Server:   p.server,
		Answered: p.counts.answered.Load(),
		Events:   p.counts.events.Load(),
		Dials:    p.counts.dials.Load(),
		Failures: p.counts.failures.Load(),
		Retries:  p.counts.retries.Load(),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Conns, s.Waiting = len(p.live)+len(p.sessions), p.waiting
	for _, r := range p.live {
		c := r.Value()
		c.mu.Lock()
		s.InFlight += c.inFlight
		s.Waiting += c.waiting
		c.mu.Unlock()
	}
	return s
}
