package codec

import (
	"errors"
	"fmt"
)

var (
	// ErrShort says that the bytes so far are a proper beginning of a frame:
	// decode again once there are more.
	ErrShort = errors.New("codec: frame is incomplete")
	// ErrUnknownOp says that a frame begins with no op code of a request.
	ErrUnknownOp = errors.New("codec: unknown op")
	// ErrMalformed says that the bytes can't be the frame that was asked for.
	ErrMalformed = errors.New("codec: malformed frame")
	// ErrTooLarge says that a frame can't be encoded within the protocol's bounds.
	ErrTooLarge = errors.New("codec: frame out of bounds")
	// ErrValueSize says that a frame of one value size met a stream of another.
	ErrValueSize = errors.New("codec: wrong value size")
	// ErrTTLRange says that a duration has no exact TTL of the value size.
	ErrTTLRange = errors.New("codec: TTL out of range")
)

// SizeError is why a frame was not encoded. It matches [ErrTooLarge].
type SizeError struct {
	Op    Op     // the frame
	Field string // "key", "channel", "value", "payload", "frame", "probe tail", "IP" or "version"
	Size  int    // the field's size in bytes
	Max   uint64 // the largest size that would have been accepted, in bytes
}

// Error names the field, its size and the bound.
func (e *SizeError) Error() string {
	return fmt.Sprintf("codec: %v: %s is %d bytes, at most %d are allowed", e.Op, e.Field, e.Size, e.Max)
}

// Unwrap returns [ErrTooLarge].
func (e *SizeError) Unwrap() error { return ErrTooLarge }

// DecodeError is why bytes are not the frame they should be. It matches
// [ErrMalformed] or [ErrUnknownOp].
type DecodeError struct {
	Offset int64 // where in the input the field begins, in bytes from 0
	// Field is "op", "status", "probe status", "frame", "response kind", "fragment",
	// "fragment index" or "record type".
	Field string
	Value uint64 // what was found there; for "frame" and "fragment", the length in bytes
	Err   error  // ErrMalformed or ErrUnknownOp
}

// Error names the offset, the field and what was found.
func (e *DecodeError) Error() string {
	switch e.Field {
	case "frame":
		return fmt.Sprintf("%v: %s of %d bytes at offset %d, at most %d are allowed", e.Err, e.Field, e.Value, e.Offset, MaxFrame)
	case "fragment":
		return fmt.Sprintf("%v: %s of %d bytes at offset %d is too long", e.Err, e.Field, e.Value, e.Offset)
	}
	return fmt.Sprintf("%v: %s is 0x%02x at offset %d", e.Err, e.Field, e.Value, e.Offset)
}

// Unwrap returns the sentinel.
func (e *DecodeError) Unwrap() error { return e.Err }

// keyTooLong is what the encoders say of a key or channel over [MaxKey] bytes. It
// stays out of line because it would cost them registers.
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

// wrongOp is what a decoder of one kind of frame says of another kind.
func wrongOp(op byte) error {
	return &DecodeError{Field: "op", Value: uint64(op), Err: ErrMalformed}
}

// wrongStatus is what a decoder of responses says of a first byte that is
// neither 00 nor 01.
func wrongStatus(b byte) error { return wrongStatuses[b] }

// wrongStatuses are made beforehand: a decoder that calls nothing needs no room
// on the stack, and takes a fifth less time for the answers that are right.
var wrongStatuses = func() (all [256]*DecodeError) {
	for b := range all {
		all[b] = &DecodeError{Field: "status", Value: uint64(b), Err: ErrMalformed}
	}
	return all
}()

// at returns a decoder's error with its offset moved.
func at(offset int64, err error) error {
	if de := (*DecodeError)(nil); errors.As(err, &de) {
		moved := *de
		moved.Offset += offset
		return &moved
	}
	return err
}
