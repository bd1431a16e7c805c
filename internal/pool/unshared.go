package pool

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
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

// Decoder decodes the next part of a response, as [conn.Call] says of its Decode. No part has more than MaxResponse
// bytes.
type Decoder = func(src []byte) (n int, done bool, err error)

// leftTime bounds the reading of a response that nobody needs any more.
const leftTime = 30 * time.Second

// Stream sends a request on a connection of its own and decodes the response as it arrives. The response
// can be of any length, and its parts have MaxResponse bytes at most. At most MaxConns streams are open at a
// time, and one LIST or STATS; further ones wait, and count as acquiring.
//
// After each part that decode has decoded, take is called, in the goroutine of the caller. The two never run at one
// time, so that take can use what decode has left for it. Decode goes on after Stream has returned, if take returns
// false, or if ctx ends: Stream then returns at once, and the rest of the response is decoded in the background, for
// leftTime at most. What a server can't send keeps its memory for good (H16, H20).
//
// Sent reports whether a byte of the request has left. An error that matches
// [codec.ErrTooLarge] says that the request can't be encoded. Nothing is sent twice.
func (p *Pool) Stream(ctx context.Context, r codec.Request, decode Decoder, take func() (more bool)) (sent bool, err error) {
	if r.Op() == codec.OpList || r.Op() == codec.OpStats {
		return p.stream(ctx, p.listing, r, decode, take)
	}
	return p.stream(ctx, p.permits, r, decode, take)
}

// Scan is Stream for sweeps, which wait for each other and for no caller: records that nobody removes in time can lock
// the server up (H12), and a loop of a caller that takes the parts of a response can last.
func (p *Pool) Scan(ctx context.Context, r codec.Request, decode Decoder,
	take func() (more bool)) (sent bool, err error) {
	return p.stream(ctx, p.scanning, r, decode, take)
}

// stream is Stream once there is room in permits.
func (p *Pool) stream(ctx context.Context, permits chan struct{}, r codec.Request, decode Decoder,
	take func() (more bool)) (sent bool, err error) {
	cl := p.o.Calls.Get()
	if err := conn.Add(cl, r); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := p.acquirePermit(ctx, permits); err != nil {
		return false, err
	}
	wanted, leave := context.WithCancel(context.Background())
	s := &stream{wanted: wanted, parts: make(chan struct{}), taken: make(chan struct{}, 1)}
	cl.Decode = func(src []byte) (n int, done bool, err error) {
		if n, done, err = decode(src); err == nil {
			err = s.hand()
		}
		return n, done, err
	}
	c, err := p.connectUnshared(ctx, conn.Options{MaxPart: p.o.MaxResponse})
	if err == nil {
		if err = c.Enqueue(cl); err != nil {
			err = cmp.Or(c.Err(), err)
		}
		c.Retire() // it ends with the call
	}
	if err != nil {
		leave()
		<-permits
		return false, p.unlessClosed(err)
	}
	stop := context.AfterFunc(p.ctx, func() { time.AfterFunc(conn.CloseGrace, leave) })
	go func() {
		defer close(s.parts)
		defer func() { <-permits }()
		defer stop()
		s.sent, s.err = p.awaitLast(wanted, c, cl)
	}()
	defer time.AfterFunc(leftTime, leave)
	defer close(s.taken) // although take, which is the caller's, may panic
	return s.follow(ctx, take)
}

// acquirePermit waits until there is room in permits.
func (p *Pool) acquirePermit(ctx context.Context, permits chan struct{}) error {
	select {
	case permits <- struct{}{}:
		return nil
	default:
	}
	if err := p.enterQueue(); err != nil {
		return err
	}
	defer p.waiting.Add(-1)
	select {
	case permits <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return window.ErrClosed
	}
}

// stream is a call that has a connection to itself: on a shared connection, the requests behind it would wait until the
// last byte of the response was decoded.
type stream struct {
	wanted context.Context // ends leftTime after the caller has returned, or CloseGrace after Close
	parts  chan struct{}   // the caller is to take a part; closed when the connection has ended
	taken  chan struct{}   // the caller has taken it; closed when the caller has returned

	// For the caller, once parts is closed.
	sent bool  // a byte of the request has left
	err  error // why the stream has ended; nil: with its response
}

// awaitLast waits until a connection has ended, with the response to its last call or because of its loss. It ends the
// connection itself after wanted.
func (p *Pool) awaitLast(wanted context.Context, c *conn.Conn, cl *conn.Call) (sent bool, err error) {
	done, sent, err := cl.Wait(wanted)
	if !done {
		c.Cut(window.ErrClosed) // the server has done nothing wrong
	}
	<-c.Done()
	return sent || err == nil, p.unlessClosed(err)
}

// follow has the caller take the parts of the response, until its end, or until the caller leaves. What has
// left by then of a request that is still being written is not known.
func (s *stream) follow(ctx context.Context, take func() bool) (sent bool, err error) {
	for {
		select {
		case _, more := <-s.parts:
			if !more {
				return s.sent, s.err
			}
		case <-ctx.Done():
			return true, ctx.Err()
		}
		if !take() {
			return true, nil
		}
		s.taken <- struct{}{} // there is room, though hand may not wait for it any more
	}
}

// hand has the caller take a part, unless it has returned. It does not wait for a caller that takes its time once the
// stream is not wanted any more.
func (s *stream) hand() error {
	select {
	case s.parts <- struct{}{}:
	case <-s.taken:
		return nil
	}
	select {
	case <-s.taken:
	case <-s.wanted.Done():
	}
	if s.wanted.Err() != nil { // both may have happened
		return window.ErrClosed
	}
	return nil
}
