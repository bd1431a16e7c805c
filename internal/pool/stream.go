package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/window"
)

// readSize is the most that a stream reads at a time in bytes.
const readSize = 16 << 10

// Decoder decodes the next part of a response. It returns how many bytes of src it has used, and
// whether the response ends there. The bytes that it has not used come again, at the start of the
// next src. [codec.ErrShort] asks for more bytes, unless a [*codec.ShortError] asks for more than
// MaxResponse has; any other error ends the stream.
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
	frame, err := r.AppendBinary(nil)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := p.acquirePermit(ctx, permits); err != nil {
		return false, err
	}
	s, end, err := p.openStream(ctx)
	if err != nil {
		<-permits
		return false, p.unlessClosed(err)
	}
	s.request = append(s.request, frame...)
	s.decode = decode
	go func() {
		defer end()
		defer func() { <-permits }()
		s.run()
	}()
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

// stream is a connection for one request. It is made for the request and closed after it: on a
// shared connection, the requests behind it would wait until the last byte of the response
// was decoded.
//
// Its goroutine does everything but take the parts, which the caller does until it has returned.
type stream struct {
	pool    *Pool
	nc      net.Conn
	request []byte // behind unsubscribeOwn
	decode  Decoder
	rest    []byte // received and not yet decoded
	alone   bool   // the response to unsubscribeOwn has come
	begun   bool   // the response has begun: EVENTs can't come any more

	parts chan struct{} // the caller is to take a part; closed when the goroutine has ended
	taken chan struct{} // the caller has taken it; closed when the caller has returned

	ctx context.Context         // its end closes the connection; the cause may be the server's silence
	end context.CancelCauseFunc // ends ctx; only the first reason counts

	// For the caller, once parts is closed.
	sent bool  // a byte of the request has left
	err  error // why the stream has ended; nil: with its response
}

// openStream makes a stream without a request, as connectUnshared makes a connection. The caller calls ended when it
// has run.
func (p *Pool) openStream(ctx context.Context) (s *stream, ended func(), err error) {
	if err := p.Connect(ctx); err != nil {
		return nil, nil, err
	}
	opening, end, err := p.beginOpening(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := p.open(opening, false)
	if err != nil {
		end()
		return nil, nil, err
	}
	if parking.Parks(c.ParkingRecord) {
		p.keepParkedSoon() // the probe may have set the server's timer
	}
	s = &stream{
		pool: p, nc: c.Conn, rest: c.Early,
		parts: make(chan struct{}), taken: make(chan struct{}, 1),
	}
	s.request, _ = unsubscribeOwn(c).AppendBinary(nil) // it can be encoded
	s.ctx, s.end = context.WithCancelCause(context.Background())
	context.AfterFunc(s.ctx, func() { s.nc.Close() })
	p.streams.Add(1)
	return s, end, nil
}

// follow has the caller take the parts of the response, until its end, or until the caller leaves. What has
// left by then of a request that is still being written is not known.
func (s *stream) follow(ctx context.Context, take func() bool) (sent bool, err error) {
	defer s.endAfter(leftTime)
	defer close(s.taken) // although take, which is the caller's, may panic
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

// run is the goroutine.
func (s *stream) run() {
	defer close(s.parts)
	defer s.pool.streams.Add(-1)
	defer context.AfterFunc(s.pool.ctx, func() { s.endAfter(conn.CloseGrace) })()
	s.err = s.exchange()
	if cause := context.Cause(s.ctx); s.err != nil && cause != nil {
		s.err = cause
	}
	if isLoss(s.err) {
		s.pool.failures.Add(1) // before the caller returns
	}
	s.end(s.err)
}

// endAfter ends the stream after a while, unless it has ended by then.
func (s *stream) endAfter(d time.Duration) {
	t := time.AfterFunc(d, func() { s.end(window.ErrClosed) })
	context.AfterFunc(s.ctx, func() { t.Stop() })
}

// exchange sends the request and decodes the response.
func (s *stream) exchange() error {
	n, err := s.timed(s.nc.Write, s.request)
	s.sent = n > 0
	for err == nil {
		if done, err := s.decodeRest(); done || err != nil {
			return err
		}
		err = s.read()
	}
	if s.begun && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", conn.ErrLost, err)
}

// read reads once. What has to be held for the part fits MaxResponse, see decodeRest.
func (s *stream) read() error {
	held := len(s.rest)
	s.rest = slices.Grow(s.rest, readSize)
	n, err := s.timed(s.nc.Read, s.rest[held:held+readSize])
	s.rest = s.rest[:held+n]
	if n > 0 {
		return nil
	}
	return err
}

// timed calls Read or Write of the connection, and ends the stream if it lasts for StallTimeout.
func (s *stream) timed(f func([]byte) (int, error), b []byte) (int, error) {
	silence := s.pool.o.StallTimeout
	defer time.AfterFunc(silence, func() { s.end(fmt.Errorf("%w: no byte for %v", conn.ErrStalled, silence)) }).Stop()
	return f(b)
}

// decodeRest decodes what has been received as far as it is complete, and hands its parts to the caller. It reports
// whether the response has ended.
func (s *stream) decodeRest() (done bool, err error) {
	for len(s.rest) > 0 && !done {
		n := 0
		event := !s.begun && codec.Op(s.rest[0]) == codec.OpEvent // EVENTs may precede the responses (H8)
		switch {
		case event:
			_, n, err = s.pool.o.Calls.Size().DecodeEvent(s.rest)
		case !s.alone:
			_, n, err = codec.DecodeStatus(s.rest)
			s.alone = true
		default:
			s.begun = true
			n, done, err = s.decode(s.rest)
		}
		s.rest = s.rest[n:]
		switch {
		case errors.Is(err, codec.ErrShort) && s.need(err) <= s.pool.o.MaxResponse:
			return false, nil
		case errors.Is(err, codec.ErrShort): // no matter what comes
			return false, fmt.Errorf("%w: the response is longer than %d bytes", conn.ErrProtocol, s.pool.o.MaxResponse)
		case err != nil:
			return false, fmt.Errorf("%w: %w", conn.ErrProtocol, err)
		case event:
			s.pool.counters.Events.Add(1)
		case s.begun && !s.hand():
			return false, context.Cause(s.ctx)
		}
	}
	if done {
		s.pool.counters.Answered.Add(1)
	}
	return done, nil
}

// need returns how many bytes have to be held, at least, until the part that err says is incomplete can be decoded.
func (s *stream) need(err error) int {
	if short := (*codec.ShortError)(nil); errors.As(err, &short) {
		return short.Need
	}
	return len(s.rest) + 1
}

// hand has the caller take a part, unless it has returned. It returns false if the stream has ended by then.
func (s *stream) hand() bool {
	select {
	case s.parts <- struct{}{}:
	case <-s.taken:
		return true
	case <-s.ctx.Done():
		return false
	}
	select {
	case <-s.taken:
		return true
	case <-s.ctx.Done(): // Close does not wait for a caller that takes a part
		return false
	}
}
