package codec

import (
	"errors"
	"fmt"
	"math"
)

var (
	// ErrShort says that the bytes are the beginning of a frame, and that more are
	// needed; how many, if that is known, is in a [*ShortError].
	ErrShort = errors.New("codec: frame is incomplete")
	// ErrUnknownOp says that the first byte is not the op code of a request.
	ErrUnknownOp = errors.New("codec: unknown op")
	// ErrMalformed says that the bytes are not a frame of the expected kind.
	ErrMalformed = errors.New("codec: malformed frame")
	// ErrTooLarge says that a frame can't be encoded within the protocol's bounds.
	ErrTooLarge = errors.New("codec: frame out of bounds")
	// ErrValueSize says that a frame has another value size than the stream.
	ErrValueSize = errors.New("codec: wrong value size")
	// ErrTTLRange says that no TTL of the value size equals a duration.
	ErrTTLRange = errors.New("codec: TTL out of range")
)

// ShortError says how long an incomplete frame or fragment is, as far as it tells by now. It matches
// [ErrShort]. The lengths in a response may be wrong: check Need against a bound before you wait for more.
type ShortError struct {
	Need int // the least length in bytes, from the first that the decoder has not taken; math.MaxInt if it is more
}

// Error names the length.
func (e *ShortError) Error() string {
	return fmt.Sprintf("%v: it has at least %d bytes", ErrShort, e.Need)
}

// Unwrap returns [ErrShort].
func (e *ShortError) Unwrap() error { return ErrShort }

// lengthOf returns the length in bytes of a head and of as many parts as it announces, at most math.MaxInt.
func lengthOf(head int, count uint64, size int) int {
	if count > uint64((math.MaxInt-head)/size) {
		return math.MaxInt
	}
	return head + int(count)*size
}

// SizeError says which part of a frame was too long to encode it. It matches
// [ErrTooLarge].
type SizeError struct {
	Op    Op     // the frame
	Field string // "key", "channel", "value", "payload", "frame", "probe tail", "IP" or "version"
	Size  int    // the field's size in bytes; of a frame, its length
	Max   uint64 // the largest size that is allowed, in bytes
}

// Error names the field, its size and the bound.
func (e *SizeError) Error() string {
	return fmt.Sprintf("codec: %v: %s is %d bytes, at most %d are allowed", e.Op, e.Field, e.Size, e.Max)
}

// Unwrap returns [ErrTooLarge].
func (e *SizeError) Unwrap() error { return ErrTooLarge }

// DecodeError says which field of a frame was wrong. It matches [ErrMalformed] or
// [ErrUnknownOp].
type DecodeError struct {
	Offset int64 // where the field begins in the input, in bytes from 0
	// Field is "op", "status", "probe status", "frame", "response kind", "fragment index" or "record type".
	Field string
	Value uint64 // what the field holds; for "frame", the length in bytes
	Err   error  // ErrMalformed or ErrUnknownOp
}

// Error names the offset, the field and what was found.
func (e *DecodeError) Error() string {
	if e.Field == "frame" {
		return fmt.Sprintf("%v: frame of %d bytes at offset %d, at most %d are allowed", e.Err, e.Value, e.Offset, MaxFrame)
	}
	return fmt.Sprintf("%v: %s is 0x%02x at offset %d", e.Err, e.Field, e.Value, e.Offset)
}

// Unwrap returns e.Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// keyTooLong returns the encoders' error for a key or channel over [MaxKey] bytes. It is
// not inlined because it would cost them registers.
//
//go:noinline
func keyTooLong(op Op, key []byte) error {
	field := "key"
	switch op {
	case OpSubscribe, OpUnsubscribe, OpChannel, OpChannels:
		field = "channel"
	}
	return &SizeError{Op: op, Field: field, Size: len(key), Max: MaxKey}
}

// wrongOp returns a decoder's error for the op code of another kind of frame.
func wrongOp(op byte) error {
	return &DecodeError{Field: "op", Value: uint64(op), Err: ErrMalformed}
}

// wrongStatus returns a decoder's error for a first byte of a response that is neither 00
// nor 01. It is not inlined because it would cost them registers.
//
//go:noinline
func wrongStatus(b byte) error {
	return &DecodeError{Field: "status", Value: uint64(b), Err: ErrMalformed}
}

// at adds offset to the offset of a decoder's error.
func at(offset int64, err error) error {
	var wrong *DecodeError
	if !errors.As(err, &wrong) {
		return err
	}
	moved := *wrong
	moved.Offset += offset
	return &moved
}
