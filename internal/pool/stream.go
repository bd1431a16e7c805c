package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/window"
)

// readSize is the most that a stream reads at a time in bytes.
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
func (p *Pool) Stream(ctx context.Context, r codec.Request, d Decoder) (sent bool, err error) {
	frame, err := r.AppendBinary(nil)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	permits := p.permits
	if r.Op() == codec.OpList || r.Op() == codec.OpStats {
		permits = p.listing
	}
	if err := p.acquirePermit(ctx, permits); err != nil {
		return false, err
	}
	c, err := p.openUnshared(ctx, false)
	if err != nil {
		<-permits
		return false, err
	}
	s := p.newStream(c, d)
	go func() {
		defer p.background.Done() // of openUnshared
		defer func() { <-permits }()
		s.run(frame)
	}()
	return s.follow(ctx)
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

// stream is a connection for one request. It is made for the request and closed after it: on a
// shared connection, the requests behind it would wait until the last byte of the response
// was decoded.
//
// Its goroutine writes and reads. The caller decodes what has been read, until it leaves; from then
// on the goroutine does that, too.
type stream struct {
	pool  *Pool
	nc    net.Conn
	sent  bool          // a byte of the request has left; set before the first part is there
	parts chan part     // what the caller is to decode; closed when the goroutine has ended
	gone  chan struct{} // closed when the caller has returned

	ctx context.Context         // its end closes the connection; the cause may be the server's silence
	end context.CancelCauseFunc // ends ctx; only the first reason counts

	// The caller uses these until it has returned, and then the goroutine.
	decoder Decoder
	rest    []byte // received and not yet decoded
	begun   bool   // EVENTs can't come any more
	left    bool   // the caller needs no more of the response
	ended   bool   // err is set
	err     error  // why the stream has ended; nil: with its response
}

// part is what a read, or the write of the request, has brought.
type part struct {
	bytes []byte
	err   error
}

// newStream makes a stream of a connection.
func (p *Pool) newStream(c *dial.Connection, d Decoder) *stream {
	s := &stream{
		pool: p, nc: c.Conn, decoder: d, rest: c.Early,
		parts: make(chan part), gone: make(chan struct{}),
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	context.AfterFunc(s.ctx, func() { s.nc.Close() })
	p.streams.Add(1)
	return s
}

// run is the goroutine.
func (s *stream) run(frame []byte) {
	defer close(s.parts)
	defer s.pool.streams.Add(-1)
	defer context.AfterFunc(s.pool.ctx, func() { s.endAfter(closeGrace) })()
	silence := s.pool.o.StallTimeout
	stall := time.AfterFunc(silence, func() { s.end(fmt.Errorf("%w: no byte for %v", conn.ErrStalled, silence)) })
	n, err := s.nc.Write(frame)
	stall.Stop()
	s.sent = n > 0
	var buf [2][readSize]byte // one is read into while the caller takes the other
	for i, next := 0, (part{err: err}); s.hand(next); i++ {
		b := buf[i%2][:]
		stall.Reset(silence)
		n, err := s.nc.Read(b)
		stall.Stop() // the decoder may be slow: only the server is timed
		if n > 0 {
			err = nil
		}
		next = part{b[:n], err}
	}
}

// endAfter ends the stream after a while, unless it has ended by then.
func (s *stream) endAfter(d time.Duration) {
	t := time.AfterFunc(d, func() { s.end(window.ErrClosed) })
	context.AfterFunc(s.ctx, func() { t.Stop() })
}

// hand has a part decoded: by the caller, unless it has returned. It returns false if no other follows.
func (s *stream) hand(next part) bool {
	select {
	case s.parts <- next:
		return next.err == nil
	case <-s.gone:
	case <-s.ctx.Done():
		select {
		case <-s.gone:
		default:
			return false // Close does not wait for a decoder
		}
	}
	if s.left && !s.ended {
		s.take(next)
	}
	return !s.ended
}

// follow has the caller decode the response, until its end, or until the caller leaves. What has
// left by then of a request that is still being written is not known.
func (s *stream) follow(ctx context.Context) (sent bool, err error) {
	defer close(s.gone)
	returned := false
	defer func() {
		if !returned { // the decoder, which is the caller's, has panicked
			s.finish(conn.ErrGone)
		}
	}()
	for !s.ended && !s.left {
		select {
		case next := <-s.parts:
			s.take(next)
		case <-s.ctx.Done():
			s.finish(context.Cause(s.ctx))
		case <-ctx.Done():
			s.left = true
			err = ctx.Err()
		}
	}
	returned = true
	if s.left {
		s.endAfter(leftTime)
		return true, err
	}
	for range s.parts { // the goroutine is about to end
	}
	return s.sent, s.err
}

// take decodes a part, behind what is left of those before.
func (s *stream) take(next part) {
	switch {
	case next.err == nil:
		s.decodeAll(next.bytes)
	case s.begun && errors.Is(next.err, io.EOF):
		s.finish(fmt.Errorf("%w: %w", conn.ErrLost, io.ErrUnexpectedEOF))
	default:
		s.finish(fmt.Errorf("%w: %w", conn.ErrLost, next.err))
	}
}

// decodeAll decodes bytes, of which no more than MaxResponse are kept at a time.
func (s *stream) decodeAll(bytes []byte) {
	for more := true; more; more = len(bytes) > 0 && !s.ended {
		n := min(len(bytes), max(s.pool.o.MaxResponse-len(s.rest), 0))
		s.rest = append(s.rest, bytes[:n]...)
		bytes = bytes[n:]
		s.decodeRest()
	}
}

// decodeRest decodes what has been received as far as it is complete.
func (s *stream) decodeRest() {
	for len(s.rest) > 0 && !s.ended {
		n, done, err := s.decode()
		s.rest = s.rest[n:]
		s.left = s.left || errors.Is(err, ErrLeft)
		switch {
		case done:
			s.pool.counters.Answered.Add(1)
			s.finish(nil)
		case err == nil || errors.Is(err, ErrLeft):
		case !errors.Is(err, codec.ErrShort):
			s.finish(fmt.Errorf("%w: %w", conn.ErrProtocol, err))
		case len(s.rest) >= s.pool.o.MaxResponse:
			s.finish(fmt.Errorf("%w: the response is longer than %d bytes", conn.ErrProtocol, s.pool.o.MaxResponse))
		default:
			return
		}
	}
}

// decode decodes what the rest begins with: an EVENT before the response (H8), or a part of this.
func (s *stream) decode() (n int, done bool, err error) {
	if s.begun || codec.Op(s.rest[0]) != codec.OpEvent {
		s.begun = true
		return s.decoder(s.rest, s.left)
	}
	_, n, err = s.pool.o.Calls.Size().DecodeEvent(s.rest)
	if err == nil {
		s.pool.counters.Events.Add(1)
	}
	return n, false, err
}

// finish ends the stream. If it has been ended before its response was there, the reason for that counts.
func (s *stream) finish(err error) {
	if cause := context.Cause(s.ctx); err != nil && cause != nil {
		err = cause
	}
	if isLoss(err) {
		s.pool.failures.Add(1) // before the caller returns
	}
	s.ended = true
	s.err = err
	s.end(err)
}
