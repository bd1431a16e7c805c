package codec

import (
	"errors"
	"fmt"
	"io"
)

// Encoder writes frames of value size T to a stream.
type Encoder[T Value] struct {
	w   io.Writer
	buf []byte
}

// NewEncoder returns an Encoder that writes to w. It does not buffer frames between calls.
func NewEncoder[T Value](w io.Writer) *Encoder[T] { return &Encoder[T]{w: w} }

// Encode writes all frames in one Write. It writes nothing if there are no frames, or if
// one of them can't be encoded.
//
// Errors: a [*SizeError] for a frame out of bounds; [ErrValueSize] for one of another value
// size; the error of the writer.
func (e *Encoder[T]) Encode(frames ...Frame) error {
	buf := e.buf[:0]
	var err error
	for _, f := range frames {
		if n := f.valueSize(); n != 0 && n != Size[T]() {
			return fmt.Errorf("%w: a frame of %d-byte values on a stream of %d-byte ones", ErrValueSize, n, Size[T]())
		}
		if buf, err = f.AppendBinary(buf); err != nil {
			return err
		}
	}
	e.buf = buf
	if len(buf) == 0 {
		return nil
	}
	_, err = e.w.Write(buf)
	return err
}

// Decoder reads frames of value size T from a stream. Its buffer has [MaxFrame] bytes, and
// grows for a response that is longer.
//
// Bytes that can't be decoded are not consumed, since it is unknown where the next frame
// begins: later calls find the same bytes. After a temporary error of the reader, such as a
// timeout, the next call goes on where the last one stopped.
type Decoder[T Value] struct {
	r      io.Reader
	buf    []byte
	lo, hi int   // buf[lo:hi] was read and not decoded yet
	offset int64 // the offset of buf[lo] in the stream
}

// NewDecoder returns a Decoder that reads from r. It may read more than the frames that it
// returns.
func NewDecoder[T Value](r io.Reader) *Decoder[T] {
	return &Decoder[T]{r: r, buf: make([]byte, MaxFrame)}
}

// Request reads the next request. It is valid until the next call.
//
// Errors: those of [DecodeRequest] except ErrShort, with offsets in the stream; [io.EOF] at
// the end of the stream; [io.ErrUnexpectedEOF] at its end within a frame; those of the
// reader.
func (d *Decoder[T]) Request() (Request, error) {
	return next(d, DecodeRequest[T])
}

// Response reads the next response, whose kind the caller knows from the request. If an
// EVENT comes first, Response returns the [Event], and the next call may return the
// response. Both are valid until the next call.
//
// Errors: those of [DecodeResponse] except ErrShort, with offsets in the stream; [io.EOF] at
// the end of the stream; [io.ErrUnexpectedEOF] at its end within a frame; those of the
// reader.
func (d *Decoder[T]) Response(kind Kind) (Response, error) {
	return next(d, func(src []byte) (Response, int, error) {
		// An unknown kind is an error, whatever has arrived.
		if kind.known() && len(src) > 0 && Op(src[0]) == OpEvent {
			return DecodeResponse[T](KindEvent, src)
		}
		return DecodeResponse[T](kind, src)
	})
}

// next decodes the next frame, and reads until it is complete.
func next[T Value, M Frame](d *Decoder[T], decode func([]byte) (M, int, error)) (m M, err error) {
	for {
		m, n, err := decode(d.buf[d.lo:d.hi])
		if err == nil {
			d.lo += n
			d.offset += int64(n)
			return m, nil
		}
		if !errors.Is(err, ErrShort) {
			return m, at(d.offset, err)
		}
		if err := d.fill(); err != nil {
			return m, err
		}
	}
}

// fill makes room in the buffer and reads once. The buffer grows only when it is full of
// one frame, which can only be a response that lists something.
func (d *Decoder[T]) fill() error {
	if d.lo > 0 {
		d.hi = copy(d.buf, d.buf[d.lo:d.hi])
		d.lo = 0
	}
	if d.hi == len(d.buf) {
		d.buf = append(d.buf, make([]byte, len(d.buf))...)
	}
	n, err := io.ReadAtLeast(d.r, d.buf[d.hi:], 1)
	d.hi += n
	if n > 0 {
		return nil
	}
	if err == io.EOF && d.hi > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}
