package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// The offset of an error is the same for a whole response and for one in pieces, and the
// error stays.
func TestMalformedFragmentErrorsNameTheOffset(t *testing.T) {
	list := recorded(t, "list")
	with := func(offset int, b byte) []byte {
		src := bytes.Clone(list)
		src[offset] = b
		return src
	}
	second := bytes.Index(list, little(2, 56))
	require.Positive(t, second)
	for _, tt := range []struct {
		name string
		src  []byte
		want codec.DecodeError
	}{
		{"status", with(0, 0), codec.DecodeError{Offset: 0, Field: "status", Value: 0, Err: codec.ErrMalformed}},
		{"status", with(0, 2), codec.DecodeError{Offset: 0, Field: "status", Value: 2, Err: codec.ErrMalformed}},
		{"first index", with(9, 0), codec.DecodeError{Offset: 9, Field: "fragment index", Value: 0, Err: codec.ErrMalformed}},
		{"second index", with(second, 1), codec.DecodeError{Offset: int64(second), Field: "fragment index", Value: 1, Err: codec.ErrMalformed}},
		{"record type", with(25+13+1, 2), codec.DecodeError{Offset: 25 + 13 + 1, Field: "record type", Value: 2, Err: codec.ErrMalformed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, n, err := codec.DecodeListResponse[uint16](tt.src)
			require.Equal(t, &tt.want, err)
			require.Zero(t, n)
			for _, piece := range []int{1, 100, len(list)} {
				var d codec.ListDecoder[uint16]
				require.Equal(t, &tt.want, feed(&d, tt.src, piece))
				_, n, err = d.Decode(list)
				require.Equal(t, &tt.want, err)
				require.Zero(t, n)
				require.False(t, d.Done())
			}
		})
	}
}

// feed passes a response to d in pieces, and returns the error that it ends with.
func feed(d *codec.ListDecoder[uint16], src []byte, piece int) error {
	var rest []byte
	for !d.Done() {
		_, n, err := d.Decode(rest)
		rest = rest[n:]
		if err != nil && (!errors.Is(err, codec.ErrShort) || len(src) == 0) {
			return err
		}
		n = min(piece, len(src))
		rest = append(rest, src[:n]...)
		src = src[n:]
	}
	return nil
}

// little returns numbers as they are sent.
func little(ns ...uint64) (b []byte) {
	for _, n := range ns {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// The beginnings of responses announce more than can arrive.
func TestDecodersHoldWhatHasArrived(t *testing.T) {
	const huge = math.MaxUint64
	entry := make([]byte, 237)
	for name, src := range map[string][]byte{
		"fragments":              little(huge),
		"empty fragments":        little(huge, 1, 0),
		"entries":                little(1, 1, huge),
		"entries, some of them":  slices.Concat(little(1, 1, huge), entry, entry),
		"fragments and entries":  append(little(huge, 1, huge), entry...),
		"entries times the size": append(little(1, 1, huge/13+2), entry...),
	} {
		src = append([]byte{1}, src...)
		t.Run(name, func(t *testing.T) {
			short := func(decode func() error) {
				t.Helper()
				require.ErrorIs(t, decode(), codec.ErrShort)
				require.LessOrEqual(t, testing.AllocsPerRun(10, func() { _ = decode() }), 16.0)
			}
			short(func() error { _, _, err := codec.DecodeListResponse[uint16](src); return err })
			short(func() error { _, _, err := codec.DecodeStatsResponse(src); return err })
			short(func() error { _, _, err := codec.DecodeConnectionsResponse(src); return err })
			short(func() error { _, _, err := codec.DecodeChannelsResponse(src); return err })
			require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
				var d codec.ListDecoder[uint16]
				_, _, _ = d.Decode(src)
			}), 16.0)
		})
	}
	t.Run("subscribers", func(t *testing.T) {
		for _, count := range []uint64{1, 1 << 40, math.MaxUint64 / 40, math.MaxUint64} {
			src := append([]byte{1}, little(count)...)
			_, _, err := codec.DecodeChannelResponse(src)
			require.ErrorIs(t, err, codec.ErrShort)
			require.LessOrEqual(t, testing.AllocsPerRun(10, func() { _, _, _ = codec.DecodeChannelResponse(src) }), 1.0)
		}
	})
}

// What does not fit a bound can be refused before it arrives.
func TestShortErrorsTellHowLongAFragmentIs(t *testing.T) {
	list := func(src []byte) error {
		_, _, err := new(codec.ListDecoder[uint16]).Decode(src)
		return err
	}
	channel := func(src []byte) error {
		_, _, err := codec.DecodeChannelResponse(src)
		return err
	}
	entry := append([]byte{200}, make([]byte, 12)...) // with a name of 200 bytes
	for name, c := range map[string]struct {
		decode func(src []byte) error
		src    []byte // after the status
		want   int
	}{
		"entries":        {list, little(1, 1, 3), 16 + 3*13},
		"some entries":   {list, append(little(1, 1, 3), entry...), 16 + 3*13},
		"names":          {list, slices.Concat(little(1, 1, 3), entry, entry, entry), 16 + 3*13 + 3*200},
		"a lot":          {list, little(1, 1, 1<<24), 16 + 13<<24},
		"more than all":  {list, little(1, 1, math.MaxUint64), math.MaxInt},
		"around zero":    {list, little(1, 1, math.MaxUint64/13+2), math.MaxInt},
		"subscribers":    {channel, little(1000), 9 + 1000*40},
		"too many of it": {channel, little(math.MaxUint64), math.MaxInt},
	} {
		err := c.decode(append([]byte{1}, c.src...))
		require.Equal(t, &codec.ShortError{Need: c.want}, err, name)
		require.ErrorIs(t, err, codec.ErrShort)
	}
}

// An entry takes 264 bytes, and an empty fragment 16 on the wire.
func TestEmptyFragmentsTakeNoMemoryForEntries(t *testing.T) {
	src, err := codec.ConnectionsResponse{Fragments: make([][]codec.ConnectionInfo, 1<<12)}.AppendBinary(nil)
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(5, func() {
		m, _, err := codec.DecodeConnectionsResponse(src)
		if len(m.Fragments) != 1<<12 || err != nil {
			t.Error(len(m.Fragments), err)
		}
	}), 40.0, "those of the list of fragments")
}

func TestFragmentDecoderReusesTheMemoryOfAFragment(t *testing.T) {
	fragment := make([]codec.ListEntry[uint16], 50)
	src, err := codec.ListResponse[uint16]{Fragments: slices.Repeat([][]codec.ListEntry[uint16]{fragment}, 1000)}.AppendBinary(nil)
	require.NoError(t, err)
	require.Less(t, testing.AllocsPerRun(5, func() { // with the race detector, the decoder is one more
		var d codec.ListDecoder[uint16]
		for rest := src; !d.Done(); {
			_, n, _ := d.Decode(rest)
			rest = rest[n:]
		}
	}), 10.0)
}

func TestDecoderDoesNotReadForAnUnknownKind(t *testing.T) {
	dec := codec.NewDecoder[uint16](bytes.NewReader([]byte("\x19\x00\x00\x00\x19\x00\x00\x00")))
	for range 2 {
		_, err := dec.Response(0)
		require.EqualError(t, err, "codec: malformed frame: response kind is 0x00 at offset 0")
	}
	res, err := dec.Response(codec.KindStatus)
	require.NoError(t, err)
	require.Equal(t, codec.KindEvent, res.Kind())
	_, err = dec.Response(0)
	require.ErrorIs(t, err, codec.ErrMalformed, "also with an EVENT in the buffer")
}

func TestDecoderGoesOnAfterAnErrorOfTheReader(t *testing.T) {
	frame := []byte("\x02\x03key")
	dec := codec.NewDecoder[uint8](iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(frame))))
	_, err := dec.Request()
	require.Equal(t, iotest.ErrTimeout, err)
	req, err := dec.Request()
	require.NoError(t, err)
	require.Equal(t, codec.Query{Key: []byte("key")}, req)
}

// writes counts the calls of Write and records their bytes.
type writes struct {
	calls int
	bytes.Buffer
}

func (w *writes) Write(b []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(b)
}

func TestEncoderWritesAllFramesInOneWriteOrNothing(t *testing.T) {
	var w writes
	enc := codec.NewEncoder[uint16](&w)
	good := codec.Query{Key: []byte("a")}
	require.ErrorIs(t, enc.Encode(good, codec.Query{Key: make([]byte, 256)}), codec.ErrTooLarge)
	insert := codec.Insert[uint8]{}
	for _, other := range []codec.Frame{insert, struct{ codec.Request }{insert}} {
		err := enc.Encode(good, other)
		require.ErrorIs(t, err, codec.ErrValueSize)
		require.EqualError(t, err, "codec: wrong value size: a frame of 1-byte values on a stream of 2-byte ones")
	}
	require.NoError(t, enc.Encode())
	require.Zero(t, w.calls, "without frames, and with an invalid one, there is no write")
	require.NoError(t, enc.Encode(good, codec.Purge{Key: []byte("a")}))
	require.Equal(t, 1, w.calls)
	require.Equal(t, "\x02\x01a\x04\x01a", w.String())
}

func TestEncoderReturnsTheWritersError(t *testing.T) {
	r, w := io.Pipe()
	require.NoError(t, r.CloseWithError(io.ErrNoProgress))
	require.Equal(t, io.ErrNoProgress, codec.NewEncoder[uint64](w).Encode(codec.Success))
}
