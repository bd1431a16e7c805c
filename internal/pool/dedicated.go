package pool

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// Dedicated makes a connection for calls that depend on the replies to earlier ones, and so must
// reach the server on the same connection or not at all. Other callers do not share it, and it does
// not count as one of MaxConns. The pool pings it while it has nothing to do, retires it when it is
// too old or idle, and ends it when the pool is closed.
//
// It ends with a reset: bytes that the server's host has not acknowledged by then never arrive.
//
// Calls that create records need [Pool.AddParking] before and [Pool.TakeParking] after.
func (p *Pool[T]) Dedicated(ctx context.Context) (*conn.Conn[T], error) {
	// If the server can't be reached, the circuit breaker notices it with shared connections.
	if _, err := p.acquire(ctx); err != nil {
		return nil, err
	}
	if err := p.beginOpening(); err != nil {
		return nil, err
	}
	defer p.background.Done()
	nc, early, err := p.openAlone(ctx)
	if err != nil {
		return nil, err
	}
	resetOnClose(nc)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		nc.Close()
		return nil, window.ErrClosed
	}
	c := conn.New(nc, early, conn.Options[T]{
		MaxInFlight: p.o.MaxInFlight, MaxQueued: p.o.MaxQueued, CanaryEvery: p.o.CanaryEvery,
		StallTimeout: p.o.StallTimeout, Calls: p.o.Calls, Counters: &p.counters, OnEnd: p.dedicatedEnded,
	})
	p.dedicated[c] = struct{}{}
	return c, nil
}

// resetOnClose has Close of a TCP connection discard what was not acknowledged, and send a
// reset.
func resetOnClose(nc net.Conn) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}

// dedicatedEnded is the OnEnd of dedicated connections.
func (p *Pool[T]) dedicatedEnded(c *conn.Conn[T], err error) {
	p.ended(c, err)
	p.mu.Lock()
	delete(p.dedicated, c)
	p.mu.Unlock()
}

// allDedicated returns the dedicated connections.
func (p *Pool[T]) allDedicated() []*conn.Conn[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.dedicated))
}

// maintainDedicated retires dedicated connections that are too old or idle, and pings those that
// have nothing to do.
func (p *Pool[T]) maintainDedicated() {
	for _, c := range p.allDedicated() {
		old := p.o.MaxConnAge > 0 && time.Since(c.Created()) >= p.o.MaxConnAge
		idle := p.o.MaxConnIdle > 0 && c.Idle() >= p.o.MaxConnIdle
		switch {
		case old || idle:
			c.Retire()
		case c.Load() == 0:
			p.background.Go(c.Ping)
		}
	}
}

// AddParking has a call that creates records keep the server parked, if it is. Calls of Do and
// Send need no AddParking.
func (p *Pool[T]) AddParking(cl *conn.Call[T]) { p.appendPark(cl) }

// TakeParking removes the reply to what AddParking has added. The call must have succeeded.
func (p *Pool[T]) TakeParking(cl *conn.Call[T]) { p.trimPark(cl) }
