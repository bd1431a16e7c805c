package pool

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// unshared are the connections that callers do not share. Before one is made, there must be a shared one,
// so that it is not the first to a server that is starting (H17). Once closed is true, they are closed as
// they are made.
type unshared[T codec.Value] struct {
	pool    *Pool[T]
	permits chan struct{} // has an element for each stream that is open or being opened, listings aside
	list    chan struct{} // has an element while a LIST or STATS is under way (H20)

	// mu guards the fields below.
	mu        sync.Mutex
	closed    bool
	streams   map[*stream[T]]struct{}
	dedicated map[*conn.Conn[T]]struct{} // those of Dedicated that have not ended
}

// init is called once, before all else.
func (u *unshared[T]) init(p *Pool[T]) {
	u.pool = p
	u.permits = make(chan struct{}, p.o.MaxConns)
	u.list = make(chan struct{}, 1)
	u.streams, u.dedicated = make(map[*stream[T]]struct{}), make(map[*conn.Conn[T]]struct{})
}

// stop has no further connection made.
func (u *unshared[T]) stop() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
}

// closeGrace is how long the end of a pool waits for the responses to streams.
const closeGrace = 250 * time.Millisecond

// end ends the connections after stop. The callers of streams leave by themselves.
func (u *unshared[T]) end() {
	u.mu.Lock()
	streams := slices.Collect(maps.Keys(u.streams))
	u.mu.Unlock()
	for _, s := range streams {
		s.bound.Reset(closeGrace)
	}
	var closing sync.WaitGroup
	for _, c := range u.allDedicated() {
		closing.Go(func() { c.Close(window.ErrClosed) })
	}
	closing.Wait()
}

// allDedicated returns the dedicated connections.
func (u *unshared[T]) allDedicated() []*conn.Conn[T] {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.dedicated))
}

// streaming returns how many streams are open.
func (u *unshared[T]) streaming() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.streams)
}

// permitsOf returns where a stream of a request needs a permit.
func (u *unshared[T]) permitsOf(op codec.Op) chan struct{} {
	if op == codec.OpList || op == codec.OpStats {
		return u.list
	}
	return u.permits
}

// acquirePermit waits for a permit.
func (u *unshared[T]) acquirePermit(ctx context.Context, permits chan struct{}) error {
	select {
	case permits <- struct{}{}:
		return nil
	default:
	}
	if !u.pool.waiters.enter() {
		return window.ErrOverloaded
	}
	defer u.pool.waiters.leave()
	select {
	case permits <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-u.pool.ctx.Done():
		return window.ErrClosed
	}
}

// open makes a connection that is not shared. Unlike that of a shared connection, its making ends with
// ctx. Before it there must be a shared one, so that it is not the first to a server that is starting
// (H17), and so that reconnect is started if the server can't be reached. If open returns no error,
// its caller calls background.Done.
func (u *unshared[T]) open(ctx context.Context, events bool) (nc net.Conn, early []byte, err error) {
	if _, err := u.pool.shared.acquire(ctx); err != nil {
		return nil, nil, err
	}
	if err := u.pool.beginOpening(); err != nil {
		return nil, nil, err
	}
	nc, early, err = u.pool.open(ctx, events)
	switch {
	case err == nil:
		return nc, early, nil
	case u.pool.ctx.Err() != nil:
		err = window.ErrClosed
	case ctx.Err() == nil:
		u.pool.noteFailure()
	}
	u.pool.background.Done()
	return nil, nil, err
}

// ended is the OnEnd of dedicated connections.
func (u *unshared[T]) ended(c *conn.Conn[T], err error) {
	u.pool.noteEnd(err)
	u.mu.Lock()
	delete(u.dedicated, c)
	u.mu.Unlock()
}

// maintain retires dedicated connections that are too old or idle, and pings those that
// have nothing to do.
func (u *unshared[T]) maintain() {
	for _, c := range u.allDedicated() {
		old := u.pool.o.MaxConnAge > 0 && time.Since(c.Created()) >= u.pool.o.MaxConnAge
		idle := u.pool.o.MaxConnIdle > 0 && c.Idle() >= u.pool.o.MaxConnIdle
		switch {
		case old || idle:
			c.Retire()
		case c.Load() == 0:
			u.pool.background.Go(func() { c.Ping() })
		}
	}
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
func (p *Pool[T]) Dedicated(ctx context.Context) (*conn.Conn[T], error) {
	nc, early, err := p.unshared.open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer p.background.Done()
	p.unshared.mu.Lock()
	defer p.unshared.mu.Unlock()
	if p.unshared.closed {
		nc.Close()
		return nil, window.ErrClosed
	}
	c := p.newConn(nc, early, conn.Options[T]{OnEnd: p.unshared.ended, Abort: true})
	p.unshared.dedicated[c] = struct{}{}
	return c, nil
}

// ForEvents makes a connection that receives EVENTs and hands them to onEvent. The caller closes it
// with window.ErrClosed, and makes the health checks. ForEvents returns an error while there is no shared
// connection, and none can be made.
func (p *Pool[T]) ForEvents(ctx context.Context, onEvent func(codec.Event[T])) (*conn.Conn[T], error) {
	nc, early, err := p.unshared.open(ctx, true)
	if err != nil {
		return nil, err
	}
	defer p.background.Done()
	return p.newConn(nc, early, conn.Options[T]{
		OnEvent: onEvent, OnEnd: func(_ *conn.Conn[T], err error) { p.noteEnd(err) },
	}), nil
}
