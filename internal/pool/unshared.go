package pool

import (
	"context"
	"maps"
	"slices"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/window"
)

// openUnshared makes a connection that callers do not share. Unlike that of a shared connection, its making ends with
// ctx. Before it there must be a shared one, so that it is not the first to a server that is starting
// (H17), and so that the pool tries to reconnect if the server can't be reached. If openUnshared returns no error,
// its caller calls background.Done.
func (p *Pool) openUnshared(ctx context.Context, events bool) (*dial.Connection, error) {
	if _, err := p.acquire(ctx); err != nil {
		return nil, err
	}
	if err := p.beginOpening(); err != nil {
		return nil, err
	}
	c, err := p.open(ctx, events)
	switch {
	case err == nil:
		return c, nil
	case p.ctx.Err() != nil:
		err = window.ErrClosed
	case ctx.Err() == nil:
		p.failures.Add(1)
	}
	p.background.Done()
	return nil, err
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
	opened, err := p.openUnshared(ctx, false)
	if err != nil {
		return nil, err
	}
	defer p.background.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		opened.Conn.Close()
		return nil, window.ErrClosed
	}
	c := p.newConn(opened, conn.Options{Abort: true, OnEnd: func(c *conn.Conn, err error) {
		p.noteEnd(err)
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.dedicated, c)
	}})
	p.dedicated[c] = struct{}{}
	return c, nil
}

// allDedicated returns the dedicated connections.
func (p *Pool) allDedicated() []*conn.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.dedicated))
}

// ForEvents makes a connection that receives EVENTs and hands them to onEvent, and returns its id. The
// caller closes it with window.ErrClosed, and makes the health checks. ForEvents returns an error while
// there is no shared connection, and none can be made.
func (p *Pool) ForEvents(ctx context.Context, onEvent func(conn.Event)) (*conn.Conn, codec.ConnID, error) {
	opened, err := p.openUnshared(ctx, true)
	if err != nil {
		return nil, codec.ConnID{}, err
	}
	defer p.background.Done()
	c := p.newConn(opened, conn.Options{
		OnEvent: onEvent, OnEnd: func(_ *conn.Conn, err error) { p.noteEnd(err) },
	})
	return c, opened.ID, nil
}
