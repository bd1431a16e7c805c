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
// next src. [codec.ErrShort] asks for more bytes, and [ErrLeft] for none; any other error ends the
// stream.
//
// Left says that the caller of Stream has returned: the decoder must find the end of the response,
// and touch nothing of its caller's.
type Decoder = func(src []byte, left bool) (n int, done bool, err error)

// ErrLeft is returned by a [Decoder] whose caller needs no more of the response.
var ErrLeft = errors.New("throttr: the caller needs no more of the response")

// leftTime bounds the reading of a response that nobody needs any more.
const leftTime = 30 * time.Second

// Stream sends a request on a connection of its own and calls d with the parts of the response
// as they arrive. The response can be of any length. At most MaxConns streams are open at a
// time, and one LIST or STATS; further ones wait, and count as acquiring.
//
// If ctx ends, or d returns [ErrLeft], Stream returns at once. The rest of the response is then read
// in the background, for leftTime at most: what a server can't send keeps its memory for good (H16,
// H20).
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
	permits := p.unshared.permitsOf(r.Op())
	if err := p.unshared.acquirePermit(ctx, permits); err != nil {
		return false, err
	}
	s, err := p.unshared.openStream(ctx, frame, d, func() { <-permits })
	if err != nil {
		return false, err
	}
	return s.follow(ctx)
}

// stream is a connection for one request. It is made for the request and closed after it: on a
// shared connection, the requests behind it would wait until the last byte of the response
// was decoded.
//
// Its goroutine writes and reads. The caller decodes what has been read, until it leaves; from then
// on the goroutine does that, too.
type stream[T codec.Value] struct {
	pool    *Pool[T]
	nc      net.Conn
	frame   []byte // the request
	decoder Decoder
	buf     []byte      // what is read into
	rest    []byte      // the part of buf that was received and not yet decoded
	stall   *time.Timer // runs during each write and read
	bound   *time.Timer // runs once the caller has left

	work   chan []byte   // what the caller is to decode
	result chan decoding // what it has decoded
	left   chan struct{} // closed when the caller leaves
	late   chan struct{} // closed when bound has fired
	over   chan struct{} // closed when sent and failed are set
	sent   bool
	failed error

	// mu guards err.
	mu  sync.Mutex
	err error // why the stream ended
}

// decoding is what a Decoder has returned.
type decoding struct {
	n    int
	done bool
	err  error
}

// openStream makes a connection for a stream, and starts the goroutine of this. Free is called when
// the stream has ended, or can't be opened.
func (a *unshared[T]) openStream(ctx context.Context, frame []byte, d Decoder, free func()) (*stream[T], error) {
	nc, early, err := a.open(ctx, false)
	if err != nil {
		free()
		return nil, err
	}
	defer a.pool.background.Done()
	s := &stream[T]{
		pool: a.pool, nc: nc, frame: frame, decoder: d, buf: make([]byte, 0, readSize),
		work: make(chan []byte), result: make(chan decoding), left: make(chan struct{}),
		late: make(chan struct{}), over: make(chan struct{}),
	}
	s.rest = append(s.buf, early...)
	// The times are set when the timers are needed.
	s.stall = time.AfterFunc(math.MaxInt64, func() {
		s.end(fmt.Errorf("%w: no byte for %v", conn.ErrStalled, a.pool.o.StallTimeout))
	})
	s.bound = time.AfterFunc(math.MaxInt64, sync.OnceFunc(func() {
		s.end(window.ErrClosed)
		close(s.late)
	}))
	a.mu.Lock()
	a.streams[s] = struct{}{}
	if a.closed { // too late for end
		s.bound.Reset(closeGrace)
	}
	a.mu.Unlock()
	a.pool.background.Go(func() {
		defer free()
		s.run()
	})
	return s, nil
}

// run is the goroutine.
func (s *stream[T]) run() {
	defer close(s.over)
	s.sent, s.failed = s.write()
	if s.failed == nil {
		s.failed = s.read()
	}
	s.stall.Stop()
	s.bound.Stop()
	s.end(conn.ErrGone)
	s.pool.unshared.mu.Lock()
	delete(s.pool.unshared.streams, s)
	s.pool.unshared.mu.Unlock()
	if err := s.failed; errors.Is(err, conn.ErrLost) || errors.Is(err, conn.ErrStalled) ||
		errors.Is(err, conn.ErrProtocol) {
		s.pool.noteFailure()
	}
}

// follow has the caller decode the response, until its end, or until the caller leaves. What has
// left by then of a request that is still being written is not known.
func (s *stream[T]) follow(ctx context.Context) (sent bool, err error) {
	defer close(s.left)
	for {
		select {
		case src := <-s.work:
			n, done, err := s.decoder(src, false)
			left := errors.Is(err, ErrLeft)
			if left {
				err = nil
				s.bound.Reset(leftTime)
			}
			select {
			case s.result <- decoding{n, done, err}:
			case <-s.over:
			}
			switch {
			case left:
				return true, nil
			case done || err != nil && !errors.Is(err, codec.ErrShort):
				<-s.over // the end is near, whatever has happened to ctx
				return s.sent, s.failed
			}
		case <-s.over:
			return s.sent, s.failed
		case <-ctx.Done():
			s.bound.Reset(leftTime)
			return true, ctx.Err()
		case <-s.pool.ctx.Done(): // Close has set the bound
			return true, window.ErrClosed
		}
	}
}

// decode has src decoded, by the caller unless it has left.
func (s *stream[T]) decode(src []byte) (n int, done bool, err error) {
	select {
	case s.work <- src:
	case <-s.left:
		return s.decoder(src, true)
	}
	select {
	case d := <-s.result:
		return d.n, d.done, d.err
	case <-s.left: // the decoder has panicked
		return 0, true, nil
	case <-s.late: // the decoder may wait for Close
		return 0, false, codec.ErrShort
	}
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

// write sends the request, and reports whether any byte of it has left.
func (s *stream[T]) write() (sent bool, err error) {
	if err := s.failure(); err != nil {
		return false, err
	}
	s.stall.Reset(s.pool.o.StallTimeout)
	n, err := s.nc.Write(s.frame)
	s.stall.Stop()
	if err != nil {
		err = s.lost(err)
	}
	return n > 0, err
}

// read has a response decoded part by part. The decoder may be slow: only the server is timed.
func (s *stream[T]) read() error {
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
			n, done, err = s.decode(s.rest)
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
