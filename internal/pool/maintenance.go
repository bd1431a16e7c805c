package pool

import (
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
)

// maintain is a goroutine of the pool. It retires connections that are too old or idle, pings idle ones, and keeps the
// server parked. What fails of the latter is done by the next connection, or by the next run.
func (p *Pool) maintain() {
	tick := time.NewTicker(p.o.HealthInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.parkingDue:
			p.keepParked(p.ctx)
			continue
		case <-tick.C:
		}
		p.retireShared()
		p.retireDedicated()
		if p.Parked() || p.parking.Wanted() || len(*p.live.Load()) > 0 {
			// Somebody who does not know that the server is parked, or will be, may have set its timer.
			p.keepParkedSoon()
		}
	}
}

// retireShared retires the shared connections that are too old, and those that have been idle for too long, except for
// the first one if there is no other. If that is too old, it is replaced: a later run retires it, when there is another
// one. If none can be made, the old one still works.
func (p *Pool) retireShared() {
	live := *p.live.Load()
	left := len(live)
	for i, r := range slices.Backward(live) {
		c := r.Value()
		switch {
		case !p.old(c) && (i == 0 || !p.idle(c)):
			p.pingIdle(c)
		case left > 1:
			left--
			p.discard(c)
			c.Retire()
		default:
			p.grow(true)
			p.pingIdle(c)
		}
	}
}

// retireDedicated retires the dedicated connections that are too old or idle.
func (p *Pool) retireDedicated() {
	for _, c := range p.allDedicated() {
		if p.old(c) || p.idle(c) {
			c.Retire()
		} else {
			p.pingIdle(c)
		}
	}
}

func (p *Pool) old(c *conn.Conn) bool {
	return p.o.MaxConnAge > 0 && time.Since(c.Created()) >= p.o.MaxConnAge
}

func (p *Pool) idle(c *conn.Conn) bool {
	return p.o.MaxConnIdle > 0 && c.Idle() >= p.o.MaxConnIdle
}

// pingIdle sends a QUERY on a connection that has nothing to do, and does not wait for the response. If the server has
// gone silent, its watchdog notices it before a caller needs it.
func (p *Pool) pingIdle(c *conn.Conn) {
	if c.Load().Calls == 0 {
		p.background.Go(func() { c.Ping(p.ctx) })
	}
}
