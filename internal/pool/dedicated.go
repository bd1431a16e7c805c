package pool

import (
	"context"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// Dedicated makes a connection for calls that depend on the replies to earlier ones, and so must
// reach the server on the same connection or not at all. Other callers do not share it, and it does
// not count as one of MaxConns. The pool pings it while it has nothing to do, retires it when it is
// too old or idle, and ends it when the pool is closed.
//
// If it ends with requests in flight, it ends with a reset: bytes that the server's host has not
// acknowledged by then never arrive.
//
// Calls that create records need [Pool.AddParking] before and [Pool.TakeParking] after.
func (p *Pool[T]) Dedicated(ctx context.Context) (*conn.Conn[T], error) {
	// If the server can't be reached, the circuit breaker notices it with shared connections.
	if _, err := p.shared.acquire(ctx); err != nil {
		return nil, err
	}
	if err := p.alone.begin(); err != nil {
		return nil, err
	}
	defer p.background.Done()
	nc, early, err := p.alone.open(ctx)
	if err != nil {
		return nil, err
	}
	p.alone.mu.Lock()
	defer p.alone.mu.Unlock()
	if p.alone.closed {
		nc.Close()
		return nil, window.ErrClosed
	}
	c := conn.New(nc, early, conn.Options[T]{
		MaxInFlight: p.o.MaxInFlight, MaxQueued: p.o.MaxQueued, CanaryEvery: p.o.CanaryEvery,
		StallTimeout: p.o.StallTimeout, Calls: p.o.Calls, Counters: &p.counters, OnEnd: p.alone.ended,
		Reset: true,
	})
	p.alone.dedicated[c] = struct{}{}
	return c, nil
}
