package dial

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
)

const (
	// tailSize is the length of the end of a probe's key in bytes. It is random but for lineEnd.
	tailSize = 16
	// headSize is how many of the first bytes are kept for hints.
	headSize = 5
	// lineEnd ends the tail, and so the key of the probe's record. Servers of protocols that are
	// made of lines, such as HTTP and Redis, then respond with an error instead of waiting.
	lineEnd = "\r\n\r\n"
	// bufferSize bounds the bytes that are held while the probe's responses are awaited, and
	// so those that are returned with them. It exceeds codec.MaxFrame, so that every EVENT fits.
	bufferSize = 16 << 10
	// everyConnection is the channel that each connection is subscribed to.
	everyConnection = "*"
)

// probe asks a server for its value size in one round trip (H6), for the record that parks it, and
// for the id of the connection. It unsubscribes the connection from the channel of all connections,
// unless that is to receive EVENTs. All requests are the same for all value sizes.
type probe struct {
	in     *bufio.Reader
	events *atomic.Uint64

	head  []byte    // what was received first; empty if nothing was
	size  conn.Size // the server's; nil until an EVENT or the probe has told it
	found Connection
}

// requests returns the frames of the probe. All of them can be encoded.
func requests(events bool) []byte {
	tail := make([]byte, tailSize)
	rand.Read(tail)
	copy(tail[tailSize-len(lineEnd):], lineEnd)
	frames, _ := codec.AppendProbe(nil, tail)
	frames, _ = parking.Query().AppendBinary(frames)
	if !events {
		frames, _ = codec.Unsubscribe{Channel: []byte(everyConnection)}.AppendBinary(frames)
	}
	frames, _ = codec.WhoAmI{}.AppendBinary(frames)
	return frames
}

// run makes the probe.
func (p *probe) run(events bool) error {
	_, err := p.found.Conn.Write(requests(events))
	if err != nil {
		return err
	}
	if _, err := p.in.Peek(1); err != nil {
		return err
	}
	head, _ := p.in.Peek(min(p.in.Buffered(), headSize))
	p.head = append(p.head, head...)
	if p.size, err = p.probedSize(); err != nil {
		return err
	}
	decode := func(src []byte) (conn.Response, int, error) { return p.size.Decode(codec.KindQuery, src) }
	if p.found.ParkingRecord, err = next(p, decode); err != nil {
		return err
	}
	if !events {
		if _, err := next(p, codec.DecodeStatus); err != nil {
			return err
		}
	}
	me, err := next(p, codec.DecodeWhoAmIResponse)
	p.found.ID = me.ID
	p.found.Early, _ = p.in.Peek(p.in.Buffered())
	return err
}

// probedSize receives the responses to the requests of codec.AppendProbe. EVENTs between them must be of the size that
// these tell.
func (p *probe) probedSize() (conn.Size, error) {
	var statuses []byte
	for {
		status, err := next(p, func(src []byte) (byte, int, error) { return src[0], 1, nil })
		if err != nil {
			return nil, err
		}
		statuses = append(statuses, status)
		bytes, _, err := codec.DecodeProbe(statuses)
		if errors.Is(err, codec.ErrShort) {
			continue
		}
		size := conn.SizeOf(bytes)
		if err == nil && p.size != nil && p.size != size {
			err = fmt.Errorf("%w: an EVENT is of a server of another value size", codec.ErrMalformed)
		}
		return size, err
	}
}

// eventLength returns the length of the EVENT at the start of src. If the value size is not known, it follows from the
// EVENT: its third field is the length of the payload, of which no byte but the lowest exceeds codec.MaxFrame>>8. The
// channel follows, whose first byte does, as it is a star or a hexadecimal digit.
func (p *probe) eventLength(src []byte) (n int, err error) {
	for bytes := 1; p.size == nil; bytes *= 2 {
		first := 2 + bytes // byte of the channel
		switch {
		case bytes > 8:
			return 0, fmt.Errorf("%w: an EVENT has no channel", codec.ErrMalformed)
		case len(src) <= first:
			return 0, codec.ErrShort
		case src[first] > codec.MaxFrame>>8:
			p.size = conn.SizeOf(bytes)
		}
	}
	_, n, err = p.size.DecodeEvent(src)
	return n, err
}

// next returns the next response, and skips the EVENTs before it. Decode returns the length of the response, or an
// error that matches codec.ErrShort if it needs more bytes. It is given at least one byte.
func next[R any](p *probe, decode func(src []byte) (R, int, error)) (response R, err error) {
	need := 1
	for {
		if _, err := p.in.Peek(need); err != nil {
			return response, err
		}
		src, _ := p.in.Peek(p.in.Buffered())
		n, event := 0, codec.Op(src[0]) == codec.OpEvent
		if event {
			n, err = p.eventLength(src)
		} else {
			response, n, err = decode(src)
		}
		switch {
		case errors.Is(err, codec.ErrShort):
			need = len(src) + 1
			continue
		case err != nil:
			return response, err
		}
		p.in.Discard(n)
		if !event {
			return response, nil
		}
		p.events.Add(1)
		need = 1
	}
}
