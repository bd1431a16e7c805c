package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

// readSize is the size of the buffer that a stream begins with in bytes. It exceeds
// codec.MaxFrame and what dial.Connect returns as early bytes.
const readSize = 16 << 10

// Decoder decodes a part of a response. It returns how many bytes of src it has used, and
// whether it needs no more. The bytes that it has not used come again, at the start of the
// next src. [codec.ErrShort] asks for more bytes; any other error ends the stream.
type Decoder = func(src []byte) (n int, done bool, err error)

// Stream sends a request on a connection of its own and calls d with the parts of the response
// as they arrive. The response can be of any length. At most MaxConns streams are open at a
// time; further ones wait, and count as acquiring.
//
// Sent reports whether a byte of the request has left. An error that matches
// [codec.ErrTooLarge] says that the request can't be encoded. Nothing is sent twice.
func (p *Pool[T]) Stream(ctx context.Context, r codec.Request, d Decoder) (sent bool, err error) {
	frame, err := r.AppendBinary(nil)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := p.alone.acquirePlace(ctx); err != nil {
		return false, err
	}
	defer func() { <-p.alone.places }()
	s, err := p.alone.openStream(ctx)
	if err != nil {
		return false, err
	}
	defer s.close()
	sent, err = s.write(frame)
	if err == nil {
		err = s.read(d)
	}
	if errors.Is(err, conn.ErrLost) || errors.Is(err, conn.ErrStalled) || errors.Is(err, conn.ErrProtocol) {
		p.CountFailure()
	}
	return sent, err
}

// stream is a connection for one request. It is made for the request and closed after it: on a
// shared connection, the requests behind it would wait until the last byte of the response
// was decoded.
//
// A stream has no goroutine: its user writes and reads. The context, Pool.Close and the timer
// that bounds each wait for the server end it from other goroutines.
type stream[T codec.Value] struct {
	pool   *Pool[T]
	nc     net.Conn
	buf    []byte      // what is read into
	rest   []byte      // the part of buf that was received and not yet decoded
	stall  *time.Timer // runs during each write and read
	detach func() bool // stops the context from ending the stream

	// mu guards err.
	mu  sync.Mutex
	err error // why the stream ended
}

// openStream makes a connection for a stream.
func (a *alone[T]) openStream(ctx context.Context) (*stream[T], error) {
	if err := a.begin(); err != nil {
		return nil, err
	}
	defer a.pool.background.Done()
	nc, early, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	s := &stream[T]{pool: a.pool, nc: nc, buf: make([]byte, 0, readSize)}
	s.rest = append(s.buf, early...)
	s.stall = time.AfterFunc(math.MaxInt64, func() { // write and receive set the time
		s.end(fmt.Errorf("%w: no byte for %v", conn.ErrStalled, a.pool.o.StallTimeout))
	})
	s.detach = context.AfterFunc(ctx, func() { s.end(ctx.Err()) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed { // too late for end
		s.end(window.ErrClosed)
	}
	a.streams[s] = struct{}{}
	return s, nil
}

// close closes the connection, and stops all that belongs to the stream.
func (s *stream[T]) close() {
	s.detach()
	s.stall.Stop()
	s.end(conn.ErrGone)
	s.pool.alone.mu.Lock()
	delete(s.pool.alone.streams, s)
	s.pool.alone.mu.Unlock()
}

// end closes the connection. Only the first reason is kept.
func (s *stream[T]) end(reason error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = reason
	}
	s.mu.Unlock()
	s.nc.Close()
}

// failure returns why the stream ended, nil if it has not.
func (s *stream[T]) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// lost ends the stream because of a network error. It returns why the stream ended: the
// network error may be a consequence of an earlier reason.
func (s *stream[T]) lost(err error) error {
	s.end(fmt.Errorf("%w: %w", conn.ErrLost, err))
	return s.failure()
}

// write sends a request, and reports whether any byte of it has left.
func (s *stream[T]) write(frame []byte) (sent bool, err error) {
	if err := s.failure(); err != nil {
		return false, err
	}
	s.stall.Reset(s.pool.o.StallTimeout)
	n, err := s.nc.Write(frame)
	s.stall.Stop()
	if err != nil {
		err = s.lost(err)
	}
	return n > 0, err
}

// read has a response decoded part by part. The decoder may be slow: only the server is timed.
func (s *stream[T]) read(d Decoder) error {
	for begun := false; ; {
		if err := s.failure(); err != nil {
			return err
		}
		var n int
		var done bool
		var err error
		switch {
		case len(s.rest) == 0:
			err = codec.ErrShort
		case !begun && codec.Op(s.rest[0]) == codec.OpEvent: // H8
			n, err = s.skipEvent()
		default:
			begun = true
			n, done, err = d(s.rest)
		}
		s.rest = s.rest[n:]
		switch {
		case done:
			s.pool.counters.Answered.Add(1)
			return nil
		case err == nil:
			continue
		case !errors.Is(err, codec.ErrShort):
			return fmt.Errorf("%w: %w", conn.ErrProtocol, err)
		case len(s.rest) >= s.pool.o.MaxResponse:
			return fmt.Errorf("%w: the response is longer than %d bytes", conn.ErrProtocol, s.pool.o.MaxResponse)
		}
		if err := s.receive(); err != nil {
			if begun && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return s.lost(err)
		}
	}
}

// skipEvent returns the length of the EVENT at the start of rest.
func (s *stream[T]) skipEvent() (n int, err error) {
	_, n, err = codec.DecodeEvent[T](s.rest)
	if err == nil {
		s.pool.counters.Events.Add(1)
	}
	return n, err
}

// receive waits for bytes and appends them to rest.
func (s *stream[T]) receive() error {
	switch {
	case len(s.rest) == 0:
		s.rest = s.buf[:0]
	case len(s.rest) == cap(s.rest):
		s.buf = make([]byte, 0, min(readSize+2*len(s.rest), s.pool.o.MaxResponse))
		s.rest = append(s.buf, s.rest...)
	}
	have := len(s.rest)
	s.stall.Reset(s.pool.o.StallTimeout)
	n, err := s.nc.Read(s.rest[have:cap(s.rest)])
	s.stall.Stop()
	s.rest = s.rest[:have+n]
	if n > 0 {
		return nil
	}
	return err
}
