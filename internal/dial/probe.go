package dial

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
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

// probed is what a probe finds.
type probed struct {
	parked conn.Response // shows the record that parks it
	id     codec.ConnID  // of the connection
}

// probe asks a server for its value size in one round trip (H6), for the record that parks it, and
// for the id of the connection. It unsubscribes the connection from the channel of all connections,
// unless that is to receive EVENTs. All requests are the same for all value sizes.
func probe(nc net.Conn, r *receiver, events bool) (found probed, err error) {
	tail := make([]byte, tailSize)
	rand.Read(tail)
	copy(tail[tailSize-len(lineEnd):], lineEnd)
	frames, err := codec.AppendProbe(nil, tail)
	if err != nil {
		return found, err
	}
	requests := []codec.Request{parking.Query()}
	if !events {
		requests = append(requests, codec.Unsubscribe{Channel: []byte(everyConnection)})
	}
	for _, q := range append(requests, codec.WhoAmI{}) {
		if frames, err = q.AppendBinary(frames); err != nil {
			return found, err
		}
	}
	if _, err := nc.Write(frames); err != nil {
		return found, err
	}
	if r.size, err = probedSize(r); err != nil {
		return found, err
	}
	found.parked, err = next(r, func(src []byte) (conn.Response, int, error) { return r.size.Decode(codec.KindQuery, src) })
	if err != nil {
		return found, err
	}
	if !events {
		if _, err := next(r, codec.DecodeStatus); err != nil {
			return found, err
		}
	}
	me, err := next(r, codec.DecodeWhoAmIResponse)
	found.id = me.ID
	return found, err
}

// probedSize receives the responses to the requests of codec.AppendProbe. EVENTs between them must be of the size that
// these tell.
func probedSize(r *receiver) (conn.Size, error) {
	var statuses []byte
	for {
		status, err := next(r, func(src []byte) (byte, int, error) { return src[0], 1, nil })
		if err != nil {
			return nil, err
		}
		statuses = append(statuses, status)
		bytes, _, err := codec.DecodeProbe(statuses)
		if errors.Is(err, codec.ErrShort) {
			continue
		}
		size := conn.SizeOf(bytes)
		if err == nil && r.size != nil && r.size != size {
			err = fmt.Errorf("%w: an EVENT is of a server of another value size", codec.ErrMalformed)
		}
		return size, err
	}
}

// receiver receives responses, and skips the EVENTs between them.
type receiver struct {
	nc     net.Conn
	size   conn.Size // the server's; nil until an EVENT or the probe has told it
	buf    []byte    // received and not yet decoded
	head   []byte    // what was received first; empty if nothing was
	events *atomic.Uint64
}

func newReceiver(nc net.Conn, t *Target) *receiver {
	return &receiver{nc: nc, buf: make([]byte, 0, bufferSize), events: t.Events}
}

// eventLength returns the length of the EVENT at the start of buf. If the value size is not known, it follows from the
// EVENT: its third field is the length of the payload, of which no byte but the lowest exceeds codec.MaxFrame>>8. The
// channel follows, whose first byte does, as it is a star or a hexadecimal digit.
func (r *receiver) eventLength() (n int, err error) {
	for bytes := 1; r.size == nil; bytes *= 2 {
		first := 2 + bytes // byte of the channel
		switch {
		case bytes > 8:
			return 0, fmt.Errorf("%w: an EVENT has no channel", codec.ErrMalformed)
		case len(r.buf) <= first:
			return 0, codec.ErrShort
		case r.buf[first] > codec.MaxFrame>>8:
			r.size = conn.SizeOf(bytes)
		}
	}
	_, n, err = r.size.DecodeEvent(r.buf)
	return n, err
}

// next returns the next response. Decode returns the length of the response, or an error that
// matches codec.ErrShort if it needs more bytes. It is given at least one byte.
func next[R any](r *receiver, decode func(src []byte) (R, int, error)) (response R, err error) {
	for {
		n, event := 0, false
		err := error(codec.ErrShort)
		switch {
		case len(r.buf) == 0:
		case codec.Op(r.buf[0]) == codec.OpEvent:
			n, err = r.eventLength()
			event = true
		default:
			response, n, err = decode(r.buf)
		}
		switch {
		case errors.Is(err, codec.ErrShort):
			if err := r.receive(); err != nil {
				return response, err
			}
			continue
		case err != nil:
			return response, err
		}
		r.buf = r.buf[n:]
		if !event {
			return response, nil
		}
		r.events.Add(1)
	}
}

// receive waits for bytes and appends them to buf.
func (r *receiver) receive() error {
	if len(r.buf) == cap(r.buf) {
		r.buf = append(make([]byte, 0, bufferSize), r.buf...)
	}
	n, err := r.nc.Read(r.buf[len(r.buf):cap(r.buf)])
	if len(r.head) == 0 {
		r.head = append(r.head, r.buf[len(r.buf) : len(r.buf)+n][:min(n, headSize)]...)
	}
	r.buf = r.buf[:len(r.buf)+n]
	if n == 0 && err != nil {
		return err
	}
	return nil
}
