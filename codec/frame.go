package codec

import (
	"encoding"
	"slices"
)

const (
	// MaxFrame is the size of the server's read buffer in bytes, and so of the
	// longest request. A server never answers a longer one, and from then on spins
	// at full load (H5 in docs/protocol.md): encoders refuse it. It bounds EVENTs
	// and the answer to a GET, too, since what they carry came in a request.
	// Answers that list something have no bound.
	MaxFrame = 8096
	// MaxKey is the length of the longest key or channel in bytes.
	MaxKey = 255
)

// Frame is any message of the protocol, of either direction.
type Frame interface {
	// AppendBinary appends the encoded frame to dst, or returns dst unchanged
	// and a [*SizeError].
	encoding.BinaryAppender
	// valueSize is the N that the frame was made for, 0 if it carries no value.
	valueSize() int
}

// reserve returns dst with room for n more bytes. Where there is room already it
// costs a comparison: growing is out of line, so that this is inlined.
func reserve(dst []byte, n int) []byte {
	if cap(dst)-len(dst) < n {
		return grow(dst, n)
	}
	return dst
}

//go:noinline
func grow(dst []byte, n int) []byte { return slices.Grow(dst, n) }

// appendKeyFrame appends the frame that consists of op, a key's length and the
// key.
func appendKeyFrame(dst []byte, op Op, key []byte) ([]byte, error) {
	if len(key) > MaxKey {
		return dst, keyTooLong(op, key)
	}
	dst = append(dst, byte(op), byte(len(key)))
	return append(dst, key...), nil
}

// decodeKeyFrame is the inverse of appendKeyFrame.
func decodeKeyFrame(src []byte, op Op) (key []byte, n int, err error) {
	if len(src) == 0 {
		return nil, 0, ErrShort
	}
	if src[0] != byte(op) {
		return nil, 0, wrongOp(src[0])
	}
	if len(src) < 2 {
		return nil, 0, ErrShort
	}
	n = 2 + int(src[1])
	if len(src) < n {
		return nil, 0, ErrShort
	}
	return src[2:n:n], n, nil
}

// decodeBareFrame decodes the frame that consists of op alone, and returns its
// length, 1.
func decodeBareFrame(src []byte, op Op) (n int, err error) {
	if len(src) == 0 {
		return 0, ErrShort
	}
	if src[0] != byte(op) {
		return 0, wrongOp(src[0])
	}
	return 1, nil
}

// appendPayloadFrame appends the frame that consists of op, the lengths of a
// channel and a payload, and the two.
func appendPayloadFrame[T Value](dst []byte, op Op, channel, payload []byte) ([]byte, error) {
	head := 2 + Size[T]()
	if err := checkPayload[T](op, "channel", channel, "payload", payload, head); err != nil {
		return dst, err
	}
	dst = reserve(dst, head+len(channel)+len(payload))
	b := dst[len(dst) : len(dst)+head]
	b[0], b[1] = byte(op), byte(len(channel))
	putValue(b[2:], T(len(payload)))
	dst = append(dst[:len(dst)+head], channel...)
	return append(dst, payload...), nil
}

// decodePayloadFrame is the inverse of appendPayloadFrame.
func decodePayloadFrame[T Value](src []byte, op Op) (channel, payload []byte, n int, err error) {
	if len(src) == 0 {
		return nil, nil, 0, ErrShort
	}
	if src[0] != byte(op) {
		return nil, nil, 0, wrongOp(src[0])
	}
	head := 2 + Size[T]()
	if len(src) < head {
		return nil, nil, 0, ErrShort
	}
	split := head + int(src[1])
	n, err = frameLength(split, uint64(getValue[T](src[2:])))
	if err != nil {
		return nil, nil, 0, err
	}
	if len(src) < n {
		return nil, nil, 0, ErrShort
	}
	return src[head:split:split], src[split:n:n], n, nil
}

// checkPayload refuses a name over 255 bytes, a payload whose length does not
// fit T, and a frame (head bytes beside the two) over [MaxFrame].
func checkPayload[T Value](op Op, nameField string, name []byte, field string, payload []byte, head int) error {
	if len(name) > MaxKey {
		return &SizeError{Op: op, Field: nameField, Size: len(name), Max: MaxKey}
	}
	if uint64(len(payload)) > uint64(^T(0)) {
		return &SizeError{Op: op, Field: field, Size: len(payload), Max: uint64(^T(0))}
	}
	if n := head + len(name) + len(payload); n > MaxFrame {
		return &SizeError{Op: op, Field: "frame", Size: n, Max: MaxFrame}
	}
	return nil
}

// frameLength adds up the parts of a frame whose payload's length came from the
// wire, and refuses a frame over [MaxFrame] before a byte of it has come.
func frameLength(head int, payload uint64) (int, error) {
	if payload > MaxFrame || head+int(payload) > MaxFrame {
		n := uint64(head) + payload
		if n < payload {
			n = payload
		}
		return 0, &DecodeError{Field: "frame", Value: n, Err: ErrMalformed}
	}
	return head + int(payload), nil
}
