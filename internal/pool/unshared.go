package pool

import (
	"context"
	"maps"
	"slices"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// connectUnshared makes a connection that callers do not share. Unlike that of a shared connection, its making ends
// with ctx. Before it there must be a shared one, so that it is not the first to a server that is starting (H17), and
// so that the pool tries to reconnect if the server can't be reached.
func (p *Pool) connectUnshared(ctx context.Context, o conn.Options) (*conn.Conn, error) {
	if err := p.Connect(ctx); err != nil {
		return nil, err
	}
	c, err := p.connect(ctx, o)
	return c, p.unlessClosed(err)
}

// unlessClosed returns why a connection could not be made.
func (p *Pool) unlessClosed(err error) error {
	if err != nil && p.isClosed() {
		return window.ErrClosed
	}
	return err
}

// Dedicated makes a connection for calls that depend on the responses to earlier ones, and so must
// reach the server on the same connection or not at all. Other callers do not share it, and it does
// not count as one of MaxConns. The pool pings it while it has nothing to do, retires it when it is
// too old or idle, and ends it when the pool is closed.
//
// If it ends with requests in flight, it ends with a TCP reset: bytes that the server's host has not
// acknowledged by then never arrive.
//
// Calls that create records need [Pool.AddParking] before and [Pool.RemoveParking] after.
func (p *Pool) Dedicated(ctx context.Context) (*conn.Conn, error) {
	return p.connectUnshared(ctx, conn.Options{Abort: true})
}

// allDedicated returns the dedicated connections.
func (p *Pool) allDedicated() []*conn.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.dedicated))
}

// ForEvents makes a connection that receives EVENTs and hands them to onEvent. The
// caller closes it with window.ErrClosed, and makes the health checks. ForEvents returns an error while
// there is no shared connection, and none can be made.
func (p *Pool) ForEvents(ctx context.Context, onEvent func(conn.Event)) (*conn.Conn, error) {
	return p.connectUnshared(ctx, conn.Options{OnEvent: onEvent})
}
