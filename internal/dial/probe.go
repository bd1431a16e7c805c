package dial

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
)

const (
	// tailSize is the length of the random end of a probe's key in bytes.
	tailSize = 16
	// bufferSize bounds the bytes that are held while the probe's responses are awaited, and
	// so those that are returned with them. It exceeds codec.MaxFrame, so that every EVENT fits.
	bufferSize = 16 << 10
)

// probe asks a server for its value size in one round trip (H6). It also returns the bytes
// that came after the responses. If ctx ends first, probe closes nc and returns the cause.
func probe[T codec.Value](ctx context.Context, nc net.Conn, events *atomic.Uint64) (size int, early []byte, err error) {
	stop := context.AfterFunc(ctx, func() { nc.Close() }) // a net.Conn of the user may have no deadlines
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
		}
	}()
	tail := make([]byte, tailSize)
	rand.Read(tail)
	frames, err := codec.AppendProbe(nil, tail)
	if err != nil {
		return 0, nil, err
	}
	if _, err := nc.Write(frames); err != nil {
		return 0, nil, err
	}
	return readProbe[T](nc, events)
}

// readProbe reads the responses to a probe. It skips EVENTs, which it decodes as those of a
// server of T. It may misread those of a server of another value size. What follows then
// does not look like the responses to a probe, and the connection is given up.
func readProbe[T codec.Value](nc net.Conn, events *atomic.Uint64) (size int, early []byte, err error) {
	var statuses []byte
	buf := make([]byte, 0, bufferSize)
	for {
		statuses, buf, err = decodeProbe[T](statuses, buf, events)
		if err != nil {
			return 0, nil, err
		}
		size, _, err := codec.DecodeProbe(statuses)
		if err == nil {
			return size, buf, nil
		}
		if !errors.Is(err, codec.ErrShort) {
			return 0, nil, err
		}
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, bufferSize), buf...)
		}
		n, err := nc.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if n == 0 && err != nil {
			return 0, nil, err
		}
	}
}

// decodeProbe appends the statuses at the start of buf to statuses, up to those that answer a
// probe, and skips complete EVENTs. It returns the statuses and the rest of buf.
func decodeProbe[T codec.Value](statuses, buf []byte, events *atomic.Uint64) ([]byte, []byte, error) {
	for len(buf) > 0 && len(statuses) < codec.ProbeResponses {
		if codec.Op(buf[0]) != codec.OpEvent {
			statuses = append(statuses, buf[0])
			buf = buf[1:]
			continue
		}
		_, n, err := codec.DecodeEvent[T](buf)
		if errors.Is(err, codec.ErrShort) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		events.Add(1)
		buf = buf[n:]
	}
	return statuses, buf, nil
}
