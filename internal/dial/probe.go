package dial

import (
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
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
)

// probe asks a server for its value size in one round trip (H6), and for the record that parks
// it. The latter request is the same for all value sizes.
func probe[T codec.Value](nc net.Conn, r *receiver) (size int, err error) {
	tail := make([]byte, tailSize)
	rand.Read(tail)
	copy(tail[tailSize-len(lineEnd):], lineEnd)
	frames, err := codec.AppendProbe(nil, tail)
	if err != nil {
		return 0, err
	}
	if frames, err = parking.Query().AppendBinary(frames); err != nil {
		return 0, err
	}
	if _, err := nc.Write(frames); err != nil {
		return 0, err
	}
	var statuses []byte
	for {
		// EVENTs are decoded as those of a server of T. If the server's value size is another
		// one, they may be misread. What follows then does not look like the responses to a
		// probe, and the connection is given up.
		err := r.next(eventLength[T], func(src []byte) (int, error) {
			statuses = append(statuses, src[0])
			return 1, nil
		})
		if err != nil {
			return 0, err
		}
		size, _, err := codec.DecodeProbe(statuses)
		if !errors.Is(err, codec.ErrShort) {
			return size, err
		}
	}
}

// keepParked receives the response to the probe's QUERY, and has the server stay parked, or
// be parked if s wants that. The probe's INSERT may have set the server's timer.
func keepParked[T codec.Value](nc net.Conn, r *receiver, s *parking.Tracker) error {
	var query codec.QueryResponse[T]
	err := r.next(eventLength[T], func(src []byte) (n int, err error) {
		query, n, err = codec.DecodeQueryResponse[T](src)
		return n, err
	})
	if err != nil {
		return err
	}
	record := parking.Record{Found: query.Found, Unit: query.TTL.Unit, Quota: uint64(query.Quota)}
	err = parking.Keep[T](s, record, func(requests ...codec.Request) (ok bool, err error) {
		var frames []byte
		for _, q := range requests {
			if frames, err = q.AppendBinary(frames); err != nil {
				return false, err
			}
		}
		if _, err := nc.Write(frames); err != nil {
			return false, err
		}
		for range requests {
			err := r.next(eventLength[T], func(src []byte) (n int, err error) {
				var status codec.Status
				status, n, err = codec.DecodeStatus(src)
				ok = bool(status)
				return n, err
			})
			if err != nil {
				return false, err
			}
		}
		return ok, nil
	})
	if errors.Is(err, parking.ErrForeign) || errors.Is(err, parking.ErrNotParked) {
		return nil // the connection is of use all the same
	}
	return err
}

// keepParkedSize is keepParked for a server whose values have size bytes.
func keepParkedSize(size int, nc net.Conn, r *receiver, s *parking.Tracker) error {
	switch size {
	case 1:
		return keepParked[uint8](nc, r, s)
	case 2:
		return keepParked[uint16](nc, r, s)
	case 4:
		return keepParked[uint32](nc, r, s)
	default:
		return keepParked[uint64](nc, r, s)
	}
}

// receiver receives responses, and skips the EVENTs between them.
type receiver struct {
	nc     net.Conn
	buf    []byte // received and not yet decoded
	head   []byte // what was received first
	silent bool   // nothing has been received
	events *atomic.Uint64
}

func newReceiver(nc net.Conn, events *atomic.Uint64) *receiver {
	return &receiver{nc: nc, buf: make([]byte, 0, bufferSize), silent: true, events: events}
}

// next has the next response decoded. Decode returns the length of the response, or an error
// that matches codec.ErrShort if it needs more bytes. It is given at least one byte.
// EventLength returns the length of an EVENT.
func (r *receiver) next(eventLength, decode func(src []byte) (n int, err error)) error {
	for {
		n, event, err := 0, false, error(codec.ErrShort)
		switch {
		case len(r.buf) == 0:
		case codec.Op(r.buf[0]) == codec.OpEvent:
			n, err = eventLength(r.buf)
			event = true
		default:
			n, err = decode(r.buf)
		}
		switch {
		case errors.Is(err, codec.ErrShort):
			if err := r.receive(); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		r.buf = r.buf[n:]
		if !event {
			return nil
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
	if r.silent {
		r.head = append(r.head, r.buf[len(r.buf) : len(r.buf)+n][:min(n, headSize)]...)
	}
	r.buf = r.buf[:len(r.buf)+n]
	if n == 0 && err != nil {
		return err
	}
	r.silent = r.silent && n == 0
	return nil
}

// eventLength returns the length of the EVENT at the start of src.
func eventLength[T codec.Value](src []byte) (int, error) {
	_, n, err := codec.DecodeEvent[T](src)
	return n, err
}
