package throttr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// session is a connection of its own for one request whose answer can be of any
// length. It is made for it and closed after it: on a connection that is shared, each
// request behind would wait until the last byte of such an answer was taken.
//
// It has no goroutine. Its user reads, and meets in end the others who can close it:
// the ctx, the client's Close, and the timer that bounds each wait for the server.
type session[T codec.Value] struct {
	pool  *pool[T]
	nc    net.Conn
	base  []byte // what is read into
	rest  []byte // received and not yet decoded; aliases base
	stall *time.Timer
	leave func() bool // detaches it from the ctx

	mu  sync.Mutex
	err error // why it ended
}

// decode takes bytes of an answer and returns how many, and whether it has seen
// enough. codec.ErrShort asks for more.
type decode func(src []byte) (n int, done bool, err error)

// converse has the answer to a request decoded as it arrives, on a session. Its errors
// are those of encoding the request, and a *RequestError.
func (p *pool[T]) converse(ctx context.Context, r codec.Request, d decode) error {
	frame, err := r.AppendBinary(nil)
	if err != nil {
		return err
	}
	sent := false
	s, err := p.session(ctx)
	if err == nil {
		defer s.close()
		if sent, err = s.write(frame); err == nil {
			err = s.read(d)
		}
	}
	if err != nil {
		return &RequestError{Server: p.server, Op: r.Op(), Sent: sent, Err: err}
	}
	return nil
}

// session opens one, once there are fewer than Config.MaxConns.
func (p *pool[T]) session(ctx context.Context) (*session[T], error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.takePlace(ctx); err != nil {
		return nil, err
	}
	s, err := p.openSession(ctx)
	if err != nil {
		<-p.places
		return nil, err
	}
	return s, nil
}

// takePlace takes a place for a session, and waits for one with Config.MaxWaiting others at
// most: those who wait for a connection count, too.
func (p *pool[T]) takePlace(ctx context.Context) error {
	select {
	case p.places <- struct{}{}:
		return nil
	default:
	}
	p.mu.Lock()
	full := p.waiting >= p.cfg.MaxWaiting
	if !full {
		p.waiting++
	}
	p.mu.Unlock()
	if full {
		return ErrOverloaded
	}
	defer func() {
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
	}()
	select {
	case p.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.ctx.Done():
		return ErrClosed
	}
}

func (p *pool[T]) openSession(ctx context.Context) (*session[T], error) {
	p.mu.Lock()
	err := p.circuit.refusal()
	if p.closed {
		err = ErrClosed
	}
	if err == nil {
		p.tasks.Add(1) // close waits for the attempt
		defer p.tasks.Done()
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	nc, early, err := p.connect(dialing)
	switch {
	case err != nil && p.ctx.Err() != nil:
		return nil, ErrClosed
	case err != nil:
		p.counts.failures.Add(1)
		return nil, err
	}
	s := &session[T]{pool: p, nc: nc, base: make([]byte, 0, readSize)}
	s.rest = append(s.base, early...)
	s.stall = time.AfterFunc(1<<63-1, func() { // write and receive set it
		s.end(fmt.Errorf("%w: no byte for %v", ErrStalled, p.cfg.StallTimeout))
	})
	s.leave = context.AfterFunc(ctx, func() { s.end(ctx.Err()) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed { // it has not seen this one
		s.end(ErrClosed)
	}
	p.sessions[s] = struct{}{}
	return s, nil
}

// endSessions closes the sessions of a pool that has been closed. Who uses one learns
// of it when he next reads.
func (p *pool[T]) endSessions() {
	p.mu.Lock()
	sessions := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	for _, s := range sessions {
		s.end(ErrClosed)
	}
}

// close gives a session's place back, and leaves nothing of it.
func (s *session[T]) close() {
	s.leave()
	s.stall.Stop()
	s.end(errConnGone)
	s.pool.mu.Lock()
	delete(s.pool.sessions, s)
	s.pool.mu.Unlock()
	<-s.pool.places
}

// end closes the connection. The first reason counts.
func (s *session[T]) end(reason error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = reason
	}
	s.mu.Unlock()
	s.nc.Close()
}

func (s *session[T]) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// lost ends the session for an error of the network, and returns why it ended: that
// error may only be what another reason looks like from here.
func (s *session[T]) lost(err error) error {
	s.end(fmt.Errorf("%w: %w", ErrConnLost, err))
	return s.failure()
}

// write sends a request, and reports whether any byte of it has left.
func (s *session[T]) write(frame []byte) (sent bool, err error) {
	if err := s.failure(); err != nil {
		return false, err
	}
	s.stall.Reset(s.pool.cfg.StallTimeout)
	n, err := s.nc.Write(frame)
	s.stall.Stop()
	if err != nil {
		err = s.lost(err)
	}
	return n > 0, err
}

// read has an answer decoded, piece by piece. The decoder may take its time: nothing
// is timed but the server.
func (s *session[T]) read(d decode) error {
	begun := false
	for {
		if err := s.failure(); err != nil {
			return err
		}
		var n int
		var done bool
		err := codec.ErrShort
		if len(s.rest) > 0 {
			if !begun && codec.Op(s.rest[0]) == codec.OpEvent { // H8
				if _, n, err = codec.DecodeEvent[T](s.rest); err == nil {
					s.pool.counts.events.Add(1)
				}
			} else {
				begun = true
				n, done, err = d(s.rest)
			}
		}
		s.rest = s.rest[n:]
		switch {
		case done:
			s.pool.counts.answered.Add(1)
			return nil
		case err == nil:
			continue
		case !errors.Is(err, codec.ErrShort):
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		case len(s.rest) >= s.pool.cfg.MaxAnswer:
			return fmt.Errorf("%w: the answer is longer than %d bytes", ErrProtocol, s.pool.cfg.MaxAnswer)
		}
		if err := s.receive(); err != nil {
			if begun && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return s.lost(err)
		}
	}
}

// receive waits for bytes, and appends them to rest.
func (s *session[T]) receive() error {
	switch {
	case len(s.rest) == 0:
		s.rest = s.base[:0]
	case len(s.rest) == cap(s.rest):
		s.base = make([]byte, 0, min(readSize+2*len(s.rest), s.pool.cfg.MaxAnswer))
		s.rest = append(s.base, s.rest...)
	}
	have := len(s.rest)
	s.stall.Reset(s.pool.cfg.StallTimeout)
	n, err := s.nc.Read(s.rest[have:cap(s.rest)])
	s.stall.Stop()
	s.rest = s.rest[:have+n]
	if n > 0 {
		return nil
	}
	return err
}
