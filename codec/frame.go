package codec

import (
	"encoding"
	"slices"
)

const (
	// MaxFrame is the length of the longest request in bytes: the size of the server's
	// read buffer. A server never responds to a longer one, and spins from then on (H5 in
	// docs/internals/protocol.md), so encoders refuse it. EVENTs and the responses to GET carry what
	// came in a request, and are not longer. Responses that list something have no bound.
	MaxFrame = 8096
	// MaxKey is the length of the longest key or channel in bytes.
	MaxKey = 255
)

// Frame is any message of the protocol, of either direction.
type Frame interface {
	// AppendBinary appends the encoded frame to dst. On an error, a [*SizeError], it
	// returns dst unchanged.
	encoding.BinaryAppender
	// valueSize returns the value size of the frame; 0 if it has no field of N bytes.
	valueSize() int
}

func (Channel) valueSize() int             { return 0 }
func (ChannelResponse) valueSize() int     { return 0 }
func (Channels) valueSize() int            { return 0 }
func (ChannelsResponse) valueSize() int    { return 0 }
func (Connection) valueSize() int          { return 0 }
func (ConnectionResponse) valueSize() int  { return 0 }
func (Connections) valueSize() int         { return 0 }
func (ConnectionsResponse) valueSize() int { return 0 }
func (Get) valueSize() int                 { return 0 }
func (Info) valueSize() int                { return 0 }
func (InfoResponse) valueSize() int        { return 0 }
func (List) valueSize() int                { return 0 }
func (Purge) valueSize() int               { return 0 }
func (Query) valueSize() int               { return 0 }
func (Stat) valueSize() int                { return 0 }
func (StatResponse) valueSize() int        { return 0 }
func (Stats) valueSize() int               { return 0 }
func (StatsResponse) valueSize() int       { return 0 }
func (Status) valueSize() int              { return 0 }
func (Subscribe) valueSize() int           { return 0 }
func (Unsubscribe) valueSize() int         { return 0 }
func (WhoAmI) valueSize() int              { return 0 }
func (WhoAmIResponse) valueSize() int      { return 0 }

// reserve returns dst with room for n more bytes. It is inlined, and grow is not: mostly
// there is room, and reserve costs a comparison.
func reserve(dst []byte, n int) []byte {
	if cap(dst)-len(dst) < n {
		return grow(dst, n)
	}
	return dst
}

//go:noinline
func grow(dst []byte, n int) []byte { return slices.Grow(dst, n) }

// appendKeyFrame appends a frame of op, key length and key.
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

// appendPayloadFrame appends a frame of op, channel length, payload length, channel and
// payload.
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

// decodePayloadFrame is the inverse of appendPayloadFrame. An EVENT and a PUBLISH differ in their first byte alone.
func decodePayloadFrame[T Value](src []byte, op Op) (m Event[T], n int, err error) {
	if len(src) == 0 {
		return m, 0, ErrShort
	}
	if src[0] != byte(op) {
		return m, 0, wrongOp(src[0])
	}
	head := 2 + Size[T]()
	if len(src) < head {
		return m, 0, ErrShort
	}
	split := head + int(src[1])
	n, err = frameLength(split, uint64(getValue[T](src[2:])))
	if err != nil {
		return m, 0, err
	}
	if len(src) < n {
		return m, 0, ErrShort
	}
	return Event[T]{src[head:split:split], src[split:n:n]}, n, nil
}

// checkPayload returns a [*SizeError] for a name over [MaxKey], for a payload whose length does
// not fit T, and for a frame over [MaxFrame]. The frame has head bytes besides the two, which
// errors call nameField and field.
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

// frameLength returns the length of a frame, whose payload's length was read from the wire.
// It returns an error if that is over [MaxFrame], even before the frame has arrived.
func frameLength(head int, payload uint64) (int, error) {
	if payload > MaxFrame || head+int(payload) > MaxFrame {
		n := uint64(head) + payload
		if n < payload { // the sum does not fit
			n = payload
		}
		return 0, &DecodeError{Field: "frame", Value: n, Err: ErrMalformed}
	}
	return head + int(payload), nil
}
