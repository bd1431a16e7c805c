package throttr

import (
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// pingKey is what the check of an idle connection asks for. Nobody has it.
const pingKey = "throttr:ping"

// upkeep discards what is too old or idle, and checks what is idle.
func (p *pool[T]) upkeep() {
	tick := time.NewTicker(p.cfg.HealthInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		for _, c := range p.unneeded() {
			p.discard(c)
			c.retire()
		}
		p.checkIdle()
	}
}

// unneeded returns the connections that are too old, and those that have had
// nothing to do for too long, save for one.
func (p *pool[T]) unneeded() []*conn[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*conn[T]
	for i, r := range p.live {
		c := r.Value()
		old := p.cfg.MaxConnAge > 0 && time.Since(c.born) >= p.cfg.MaxConnAge
		idle := p.cfg.MaxConnIdle > 0 && i > 0 && c.idle() >= p.cfg.MaxConnIdle
		if old || idle {
			out = append(out, c)
		}
	}
	return out
}

// checkIdle sends a QUERY on the connections that have nothing to do: a server that
// has gone silent is so noticed by the watchdog before a caller needs it.
func (p *pool[T]) checkIdle() {
	p.mu.Lock()
	live := slices.Clone(p.live)
	p.mu.Unlock()
	for _, r := range live {
		if c := r.Value(); c.load.get() == 0 {
			c.ping()
		}
	}
}

// usage tells for how long nobody has needed a connection. It is looked at from time
// to time, so that a request costs no clock. The mutex of its connection guards it.
type usage struct {
	pushes uint64    // calls queued
	seen   uint64    // pushes at the last look
	since  time.Time // of the last look that saw a new one
}

// idle returns for how long nobody has needed the connection.
func (c *conn[T]) idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := &c.usage; u.pushes != u.seen {
		u.seen, u.since = u.pushes, time.Now()
	}
	return time.Since(c.usage.since)
}

// ping sends a QUERY and waits until it is answered, or the connection has ended.
func (c *conn[T]) ping() {
	cl := c.calls.Get().(*call[T])
	cl.reset()
	add(cl, codec.Query{Key: []byte(pingKey)})
	if _, err := c.push(cl, false); err == nil {
		<-cl.done
		c.mu.Lock()
		c.usage.seen++ // a ping is no use
		c.mu.Unlock()
	}
	c.calls.Put(cl)
}
