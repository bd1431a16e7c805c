package pool

import (
	"time"

	"github.com/throttr-go/throttr/internal/conn"
)

// maintain retires connections that are too old or idle, and pings idle ones, until the pool
// is closed.
func (p *Pool[T]) maintain() {
	tick := time.NewTicker(p.o.HealthInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		for _, c := range p.expired() {
			p.discard(c)
			c.Retire()
		}
		p.pingIdle()
		if p.Parked() || p.parking.Wanted() || len(*p.conns.Load()) > 0 {
			// Somebody who does not know that the server is parked may have set its timer.
			p.keepParkedSoon()
		}
	}
}

// expired returns the connections that are too old, and those that have been idle for too
// long. The first connection does not count as idle: a pool keeps one.
func (p *Pool[T]) expired() []*conn.Conn[T] {
	var expired []*conn.Conn[T]
	for i, c := range *p.conns.Load() {
		old := p.o.MaxConnAge > 0 && time.Since(c.Created()) >= p.o.MaxConnAge
		idle := p.o.MaxConnIdle > 0 && i > 0 && c.Idle() >= p.o.MaxConnIdle
		if old || idle {
			expired = append(expired, c)
		}
	}
	return expired
}

// pingIdle sends a QUERY on the connections that have nothing to do. If the server has gone
// silent, their watchdogs notice it before a caller needs them.
func (p *Pool[T]) pingIdle() {
	for _, c := range *p.conns.Load() {
		if c.Load() == 0 {
			c.Ping()
		}
	}
}
