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

// NewEncoder returns an Encoder that writes to w. It buffers nothing between two
// calls.
func NewEncoder[T Value](w io.Writer) *Encoder[T] { return &Encoder[T]{w: w} }

// Encode writes all frames in one Write, or none of them: a [*SizeError] for a
// frame out of bounds, [ErrValueSize] for one of another value size. What the
// writer returns is returned as it is. Without frames it does not write.
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

// Decoder reads frames of value size T from a stream, through a buffer of
// [MaxFrame] bytes, or more where an answer that lists something is longer. Bytes that can't be decoded stay where they are, since nobody
// knows where the next frame begins: a further call meets them again. After an
// error of the reader that was temporary, such as a timeout, the next call goes on.
type Decoder[T Value] struct {
	r      io.Reader
	buf    []byte
	lo, hi int   // the bytes read and not yet decoded are buf[lo:hi]
	offset int64 // of buf[lo] in the stream
}

// NewDecoder returns a Decoder that reads from r. It may read more from r than
// it has been asked to decode.
func NewDecoder[T Value](r io.Reader) *Decoder[T] {
	return &Decoder[T]{r: r, buf: make([]byte, MaxFrame)}
}

// Request reads the next request. It is valid until the next call.
//
// Errors: those of [DecodeRequest] save ErrShort, with offsets from the start of
// the stream; [io.EOF] at the end of the stream, [io.ErrUnexpectedEOF] within a
// frame; those of the reader.
func (d *Decoder[T]) Request() (Request, error) {
	return next(d, DecodeRequest[T])
}

// Response reads the next response, which is to be of the given kind. Where an
// EVENT comes first, the [Event] is returned: ask again for the response then. It
// is valid until the next call.
//
// Errors: those of [DecodeResponse] save ErrShort, with offsets from the start of
// the stream; [io.EOF] at the end of the stream, [io.ErrUnexpectedEOF] within a
// frame; those of the reader.
func (d *Decoder[T]) Response(kind Kind) (Response, error) {
	return next(d, func(src []byte) (Response, int, error) {
		// A kind that is unknown fails the same way whatever has arrived so far.
		if kind.known() && len(src) > 0 && Op(src[0]) == OpEvent {
			return DecodeResponse[T](KindEvent, src)
		}
		return DecodeResponse[T](kind, src)
	})
}

// next decodes what is buffered, and reads for as long as that is too short.
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

// fill reads once, and makes room first. Only an answer that lists something can be
// longer than the buffer: that grows then, with what has arrived.
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
