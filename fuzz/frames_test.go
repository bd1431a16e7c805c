package fuzz_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// decoder decodes one frame, as the functions of package codec do.
type decoder func(src []byte) (codec.Frame, int, error)

// frames decodes all frames at the start of src, the i-th by next(i), and checks each. It
// returns them, their total length and the error behind them.
func frames(t *testing.T, src []byte, next func(i int) decoder) (got []codec.Frame, n int, err error) {
	for {
		decode := next(len(got))
		frame, took, err := decodeOne(t, decode, src[n:])
		if err != nil {
			return got, n, err
		}
		got = append(got, frame)
		n += took
	}
}

// decodeOne decodes one frame and checks the result.
func decodeOne(t *testing.T, decode decoder, src []byte) (codec.Frame, int, error) {
	frame, n, err := decode(src)
	whole := src // the bytes that decide the result
	if err == nil {
		require.Positive(t, n)
		require.LessOrEqual(t, n, len(src))
		if !unbounded(frame) {
			require.LessOrEqual(t, n, codec.MaxFrame)
		}
		whole = src[:n]
		again, err := frame.AppendBinary(nil)
		require.NoError(t, err)
		require.Equal(t, whole, again)
	} else {
		require.Zero(t, n)
		require.Nil(t, frame)
		requireOneSentinel(t, err)
	}
	checkPrefixes(t, decode, whole, frame, err)
	return frame, n, err
}

// requireOneSentinel requires that err matches exactly one of the sentinels, and that its
// offset is the start of the frame, unless the field is in a fragment.
func requireOneSentinel(t *testing.T, err error) {
	matches := 0
	for _, sentinel := range []error{codec.ErrShort, codec.ErrUnknownOp, codec.ErrMalformed} {
		if errors.Is(err, sentinel) {
			matches++
		}
	}
	require.Equal(t, 1, matches, "%v", err)
	var de *codec.DecodeError
	require.Equal(t, !errors.Is(err, codec.ErrShort), errors.As(err, &de))
	if de != nil && de.Field != "fragment index" && de.Field != "record type" {
		require.Zero(t, de.Offset)
	}
}

// checkPrefixes decodes all prefixes of src, from the shortest. They must be short until
// one has the same result as src. The capacity of the prefixes is their length, so that
// reading too far panics.
func checkPrefixes(t *testing.T, decode decoder, src []byte, want codec.Frame, wantErr error) {
	for i := range len(src) + 1 {
		frame, n, err := decode(src[:i:i])
		if errors.Is(err, codec.ErrShort) {
			require.Zero(t, n)
			continue
		}
		require.Equal(t, wantErr, err)
		if err == nil {
			require.Equal(t, len(src), i, "complete before its end")
			require.Equal(t, want, frame)
		}
		return
	}
	require.ErrorIs(t, wantErr, codec.ErrShort)
}

// unbounded reports whether a frame is a response of unbounded length.
func unbounded(f codec.Frame) bool {
	res, ok := f.(codec.Response)
	return ok && res.Kind() > codec.KindEvent
}

// checkStream compares a codec.Decoder, whose i-th frame next(i) reads, with the frames that
// were decoded from memory, and with the error behind them.
func checkStream(t *testing.T, next func(i int) (codec.Frame, error), want []codec.Frame, n, total int, wantErr error) {
	for i, frame := range want {
		got, err := next(i)
		require.NoError(t, err)
		require.Equal(t, frame, got)
	}
	_, err := next(len(want))
	var de *codec.DecodeError
	switch {
	case errors.As(wantErr, &de):
		atStart := *de
		atStart.Offset += int64(n)
		require.Equal(t, &atStart, err)
	case n == total:
		require.Equal(t, io.EOF, err)
	default:
		require.Equal(t, io.ErrUnexpectedEOF, err)
	}
}

// arrivals returns readers of src in one piece and in single bytes.
func arrivals(src []byte) []io.Reader {
	return []io.Reader{bytes.NewReader(src), iotest.OneByteReader(bytes.NewReader(src))}
}

// frameOf converts the results of a decoder.
func frameOf[M codec.Frame](m M, n int, err error) (codec.Frame, int, error) { return m, n, err }
