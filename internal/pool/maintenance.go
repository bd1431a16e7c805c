package pool

import (
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
)

// maintain retires connections that are too old or idle, and pings idle ones, until the pool
// is closed. It keeps an old connection until there is another one: if none can be made, the
// old one still works.
func (p *Pool[T]) maintain() {
	tick := time.NewTicker(p.o.HealthInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		expired, replace := p.shared.expired()
		for _, c := range expired {
			p.shared.discard(c)
			c.Retire()
		}
		if replace {
			p.shared.grow()
		}
		p.shared.pingIdle()
		p.unshared.maintain()
		if p.Parked() || p.keeper.tracker.Wanted() || len(*p.shared.conns.Load()) > 0 {
			// Somebody who does not know that the server is parked, or will be, may have set its timer.
			p.keeper.soon()
		}
	}
}

// expired returns the connections that are too old, and those that have been idle for too
// long, except for the first connection if there is no other. If that one is too old, replace
// is true: a later run retires it, when there is another one.
func (s *shared[T]) expired() (expired []*conn.Conn[T], replace bool) {
	conns := *s.conns.Load()
	for i, c := range slices.Backward(conns) {
		old := s.pool.o.MaxConnAge > 0 && time.Since(c.Created()) >= s.pool.o.MaxConnAge
		idle := s.pool.o.MaxConnIdle > 0 && i > 0 && c.Idle() >= s.pool.o.MaxConnIdle
		switch {
		case !old && !idle:
		case len(expired) < len(conns)-1:
			expired = append(expired, c)
		default:
			replace = true
		}
	}
	return expired, replace
}

// pingIdle sends a QUERY on the connections that have nothing to do, and does not wait for the
// responses. If the server has gone silent, their watchdogs notice it before a caller needs
// them.
func (s *shared[T]) pingIdle() {
	for _, c := range *s.conns.Load() {
		if c.Load() == 0 {
			s.pool.background.Go(func() { c.Ping() })
		}
	}
}
