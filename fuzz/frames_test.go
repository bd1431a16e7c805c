package fuzz_test

import (
	"bytes"
	"errors"
	"fmt"
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

func FuzzRequest8(f *testing.F)  { fuzzRequest[uint8](f) }
func FuzzRequest16(f *testing.F) { fuzzRequest[uint16](f) }
func FuzzRequest32(f *testing.F) { fuzzRequest[uint32](f) }
func FuzzRequest64(f *testing.F) { fuzzRequest[uint64](f) }

func fuzzRequest[T codec.Value](f *testing.F) {
	for _, tr := range transcripts[T](f) {
		f.Add(tr.sent)
	}
	probe, err := codec.AppendProbe(nil, []byte("tail"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(probe)

	decode := decoder(func(src []byte) (codec.Frame, int, error) {
		return frameOf(codec.DecodeRequest[T](src))
	})
	f.Fuzz(func(t *testing.T, src []byte) {
		got, n, err := frames(t, src, func(int) decoder { return decode })
		for _, r := range arrivals(src) {
			dec := codec.NewDecoder[T](r)
			checkStream(t, func(int) (codec.Frame, error) { return dec.Request() }, got, n, len(src), err)
		}
	})
}

func FuzzResponse8(f *testing.F) { fuzzResponse[uint8](f) }

func FuzzResponse16(f *testing.F) { fuzzResponse[uint16](f) }
func FuzzResponse32(f *testing.F) { fuzzResponse[uint32](f) }
func FuzzResponse64(f *testing.F) { fuzzResponse[uint64](f) }

// fuzzResponse decodes responses. The kinds are one byte each, and repeat.
func fuzzResponse[T codec.Value](f *testing.F) {
	var kinds []byte
	for _, res := range responses[T]() {
		src := encode(f, res)
		kinds = append(kinds, byte(res.Kind()))
		f.Add([]byte{byte(res.Kind())}, src)
		f.Add([]byte{byte(res.Kind())}, src[:len(src)-1])
	}
	f.Add(kinds, encode(f, responses[T]()...))
	f.Add([]byte{0}, []byte{1})
	for _, kind := range []codec.Kind{codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels} {
		for _, counts := range []string{
			"\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00",
			"\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
			"\xff\xff\xff\xff\xff\xff\xff\xff",
		} {
			f.Add([]byte{byte(kind)}, append([]byte("\x01"+counts), make([]byte, 300)...))
		}
	}
	for _, tr := range transcripts[T](f) {
		f.Add(kindsOf[T](f, tr.sent), tr.received)
	}

	f.Fuzz(func(t *testing.T, kinds, src []byte) {
		if len(kinds) == 0 {
			kinds = []byte{byte(codec.KindStatus)}
		}
		kind := func(i int) codec.Kind { return codec.Kind(kinds[i%len(kinds)]) }
		got, n, err := frames(t, src, func(i int) decoder {
			return func(src []byte) (codec.Frame, int, error) {
				// An EVENT can come before every response.
				if known(kind(i)) && len(src) > 0 && codec.Op(src[0]) == codec.OpEvent {
					return frameOf(codec.DecodeResponse[T](codec.KindEvent, src))
				}
				return frameOf(codec.DecodeResponse[T](kind(i), src))
			}
		})
		for _, r := range arrivals(src) {
			dec := codec.NewDecoder[T](r)
			checkStream(t, func(i int) (codec.Frame, error) { return dec.Response(kind(i)) }, got, n, len(src), err)
		}
		checkFragmentDecoder[T](t, kind(0), src)
	})
}

// known reports whether a response can be of kind k.
func known(k codec.Kind) bool { return k >= codec.KindStatus && k <= codec.KindWhoAmI }

// kindsOf returns the kinds of the responses to the requests in src.
func kindsOf[T codec.Value](f *testing.F, src []byte) []byte {
	var kinds []byte
	for len(src) > 0 {
		req, n, err := codec.DecodeRequest[T](src)
		if err != nil {
			f.Fatal(err)
		}
		kinds = append(kinds, byte(req.ResponseKind()))
		src = src[n:]
	}
	return kinds
}

// checkFragmentDecoder compares a FragmentDecoder, which gets a response at once and in
// pieces, with the decoder of whole responses.
func checkFragmentDecoder[T codec.Value](t *testing.T, kind codec.Kind, src []byte) {
	res, n, err := codec.DecodeResponse[T](kind, src)
	switch kind {
	case codec.KindList:
		m, _ := res.(codec.ListResponse[T])
		checkPieces(t, src, m.Fragments, n, err)
	case codec.KindStats:
		m, _ := res.(codec.StatsResponse)
		checkPieces(t, src, m.Fragments, n, err)
	case codec.KindConnections:
		m, _ := res.(codec.ConnectionsResponse)
		checkPieces(t, src, m.Fragments, n, err)
	case codec.KindChannels:
		m, _ := res.(codec.ChannelsResponse)
		checkPieces(t, src, m.Fragments, n, err)
	}
}

func checkPieces[E codec.FragmentEntry[E]](t *testing.T, src []byte, fragments [][]E, n int, wantErr error) {
	var want []string
	for _, entries := range fragments {
		want = append(want, fmt.Sprintf("%+v", entries))
	}
	for _, size := range []int{1, 7, 64, len(src) + 1} {
		var d codec.FragmentDecoder[E]
		var got []string // entries are valid until the next call
		var err error
		took := 0
		for end := min(size, len(src)); !d.Done(); {
			var entries []E
			var n int
			entries, n, err = d.Decode(src[took:end:end])
			took += n
			switch {
			case err == nil && entries != nil:
				got = append(got, fmt.Sprintf("%+v", entries))
			case errors.Is(err, codec.ErrShort) && end < len(src):
				end = min(end+size, len(src))
				continue
			}
			if err != nil {
				break
			}
		}
		require.Equal(t, wantErr, err)
		require.Equal(t, err == nil, d.Done())
		if err == nil {
			require.Equal(t, n, took)
			require.Equal(t, want, got)
		}
	}
}
