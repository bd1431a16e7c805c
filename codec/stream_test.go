package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
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

func TestOpThatIsNotARequestIsUnknown(t *testing.T) {
	bare := map[codec.Op]bool{
		codec.OpList: true, codec.OpInfo: true, codec.OpStats: true, codec.OpConnections: true,
		codec.OpChannels: true, codec.OpWhoAmI: true,
	}
	for op := range 256 {
		_, n, err := codec.DecodeRequest[uint16]([]byte{byte(op)})
		if bare[codec.Op(op)] {
			require.NoError(t, err)
			require.Equal(t, 1, n)
			continue
		}
		if op >= 0x01 && op <= 0x09 || op >= 0x10 && op <= 0x18 {
			require.ErrorIs(t, err, codec.ErrShort)
			continue
		}
		require.Zero(t, n)
		require.Equal(t, &codec.DecodeError{Field: "op", Value: uint64(op), Err: codec.ErrUnknownOp}, err)
		require.ErrorIs(t, err, codec.ErrUnknownOp)
	}
}

func TestDecoderRejectsOtherMessages(t *testing.T) {
	for name, decode := range map[string]func([]byte) error{
		"INSERT": func(b []byte) error { _, _, err := codec.DecodeInsert[uint8](b); return err },
		"QUERY":  func(b []byte) error { _, _, err := codec.DecodeQuery(b); return err },
		"UPDATE": func(b []byte) error { _, _, err := codec.DecodeUpdate[uint16](b); return err },
		"PURGE":  func(b []byte) error { _, _, err := codec.DecodePurge(b); return err },
		"EVENT":  func(b []byte) error { _, _, err := codec.DecodeEvent[uint64](b); return err },
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, decode(nil), codec.ErrShort)
			err := decode([]byte{0x7f})
			require.ErrorIs(t, err, codec.ErrMalformed)
			require.EqualError(t, err, "codec: malformed frame: op is 0x7f at offset 0")
		})
	}
}

// The responses to LIST, STATS, CONNECTIONS, CHANNELS, INFO and WHOAMI have no status of a failure.
func TestStatusIsZeroOrOne(t *testing.T) {
	neverFails := []codec.Kind{
		codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels, codec.KindInfo, codec.KindWhoAmI,
	}
	for kind := codec.KindStatus; kind <= codec.KindWhoAmI; kind++ {
		for b := range 256 {
			if kind == codec.KindEvent || b == 1 || b == 0 && !slices.Contains(neverFails, kind) {
				continue
			}
			res, n, err := codec.DecodeResponse[uint16](kind, []byte{byte(b), 0, 0, 0, 0, 0, 0})
			require.Equal(t, &codec.DecodeError{Field: "status", Value: uint64(b), Err: codec.ErrMalformed}, err, kind)
			require.Zero(t, n)
			require.Nil(t, res)
		}
	}
}

func TestEncodersRejectFramesOutOfBounds(t *testing.T) {
	long := make([]byte, 9000)
	k := long[:1]
	for _, tt := range []struct {
		name  string
		frame codec.Frame
		want  codec.SizeError
	}{
		{"INSERT key", codec.Insert[uint8]{Key: long[:256]}, codec.SizeError{Op: codec.OpInsert, Field: "key", Size: 256, Max: 255}},
		{"UPDATE key", codec.Update[uint16]{Key: long[:300]}, codec.SizeError{Op: codec.OpUpdate, Field: "key", Size: 300, Max: 255}},
		{"QUERY key", codec.Query{Key: long[:256]}, codec.SizeError{Op: codec.OpQuery, Field: "key", Size: 256, Max: 255}},
		{"PURGE key", codec.Purge{Key: long[:256]}, codec.SizeError{Op: codec.OpPurge, Field: "key", Size: 256, Max: 255}},
		{"GET key", codec.Get{Key: long[:256]}, codec.SizeError{Op: codec.OpGet, Field: "key", Size: 256, Max: 255}},
		{"SET key", codec.Set[uint16]{Key: long[:256]}, codec.SizeError{Op: codec.OpSet, Field: "key", Size: 256, Max: 255}},
		{"SET value of 256 bytes for uint8", codec.Set[uint8]{Key: k, Value: long[:256]}, codec.SizeError{Op: codec.OpSet, Field: "value", Size: 256, Max: 255}},
		{"SET frame of 8097 bytes", codec.Set[uint16]{Key: k, Value: long[:8097-8]}, codec.SizeError{Op: codec.OpSet, Field: "frame", Size: 8097, Max: 8096}},
		{"EVENT channel", codec.Event[uint16]{Channel: long[:256]}, codec.SizeError{Op: codec.OpEvent, Field: "channel", Size: 256, Max: 255}},
		{"EVENT payload of 256 bytes for uint8", codec.Event[uint8]{Payload: long[:256]}, codec.SizeError{Op: codec.OpEvent, Field: "payload", Size: 256, Max: 255}},
		{"EVENT frame of 8097 bytes", codec.Event[uint64]{Payload: long[:8097-10]}, codec.SizeError{Op: codec.OpEvent, Field: "frame", Size: 8097, Max: 8096}},
		{"GET response value of 256 bytes for uint8", codec.GetResponse[uint8]{Found: true, Value: long[:256]}, codec.SizeError{Op: codec.OpGet, Field: "value", Size: 256, Max: 255}},
		{"GET response frame of 8097 bytes", codec.GetResponse[uint32]{Found: true, Value: long[:8097-10]}, codec.SizeError{Op: codec.OpGet, Field: "frame", Size: 8097, Max: 8096}},
		{"STAT key", codec.Stat{Key: long[:256]}, codec.SizeError{Op: codec.OpStat, Field: "key", Size: 256, Max: 255}},
		{"SUBSCRIBE channel", codec.Subscribe{Channel: long[:256]}, codec.SizeError{Op: codec.OpSubscribe, Field: "channel", Size: 256, Max: 255}},
		{"UNSUBSCRIBE channel", codec.Unsubscribe{Channel: long[:256]}, codec.SizeError{Op: codec.OpUnsubscribe, Field: "channel", Size: 256, Max: 255}},
		{"CHANNEL name", codec.Channel{Name: long[:256]}, codec.SizeError{Op: codec.OpChannel, Field: "channel", Size: 256, Max: 255}},
		{"PUBLISH channel", codec.Publish[uint16]{Channel: long[:256]}, codec.SizeError{Op: codec.OpPublish, Field: "channel", Size: 256, Max: 255}},
		{"PUBLISH payload of 256 bytes for uint8", codec.Publish[uint8]{Payload: long[:256]}, codec.SizeError{Op: codec.OpPublish, Field: "payload", Size: 256, Max: 255}},
		{"PUBLISH frame of 8097 bytes", codec.Publish[uint16]{Payload: long[:8097-4]}, codec.SizeError{Op: codec.OpPublish, Field: "frame", Size: 8097, Max: 8096}},
		{"LIST response key", codec.ListResponse[uint8]{Fragments: [][]codec.ListEntry[uint8]{{{}, {Key: long[:256]}}}}, codec.SizeError{Op: codec.OpList, Field: "key", Size: 256, Max: 255}},
		{"STATS response key", codec.StatsResponse{Fragments: [][]codec.StatsEntry{{{Key: long[:256]}}}}, codec.SizeError{Op: codec.OpStats, Field: "key", Size: 256, Max: 255}},
		{"CHANNELS response name", codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{{{Name: long[:256]}}}}, codec.SizeError{Op: codec.OpChannels, Field: "channel", Size: 256, Max: 255}},
		{"CONNECTION response IP", codec.ConnectionResponse{Found: true, Connection: codec.ConnectionInfo{IP: "2001:db8::1:2:3:4"}}, codec.SizeError{Op: codec.OpConnection, Field: "IP", Size: 17, Max: 16}},
		{"INFO response version", codec.InfoResponse{Version: "12345678901234567"}, codec.SizeError{Op: codec.OpInfo, Field: "version", Size: 17, Max: 16}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dst := append(make([]byte, 0, 16), "kept"...)
			got, err := tt.frame.AppendBinary(dst)
			require.ErrorIs(t, err, codec.ErrTooLarge)
			require.Equal(t, &tt.want, err)
			require.EqualError(t, err, fmt.Sprintf("codec: %v: %s is %d bytes, at most %d are allowed", tt.want.Op, tt.want.Field, tt.want.Size, tt.want.Max))
			require.Equal(t, "kept", string(got))
			require.Same(t, &dst[0], &got[0])
			require.Equal(t, cap(dst), cap(got))
			require.Equal(t, make([]byte, 12), dst[4:16], "nothing is written behind dst")
		})
	}
}

// A length that no frame can have is an error as soon as it is read: its bytes may never
// come.
func TestLengthsOutOfBoundsAreMalformedAtOnce(t *testing.T) {
	set := append([]byte{0x05, 0x04}, 1, 0, 0, 0, 0, 0, 0, 0, 255)
	get := append([]byte{0x01, 0x04}, 1, 0, 0, 0, 0, 0, 0, 0)
	event := []byte{0x19, 255}
	for _, tt := range []struct {
		name   string
		before []byte // up to the length
		names  uint64 // bytes of key or channel
		like   codec.Frame
	}{
		{"SET", set, 255, codec.Set[uint64]{}},
		{"GET response", get, 0, codec.GetResponse[uint64]{}},
		{"EVENT", event, 255, codec.Event[uint64]{}},
		{"PUBLISH", []byte{0x13, 255}, 255, codec.Publish[uint64]{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fixed := uint64(len(tt.before)) + 8 + tt.names
			g := golden{tt.name, 8, tt.like, ""}
			for _, length := range []uint64{math.MaxUint64, math.MaxUint64 - fixed + 1, math.MaxInt64, math.MaxInt64 - fixed, 1 << 32, 8096, 8097 - fixed} {
				src := slices.Concat(tt.before, little(length))
				_, n, err := g.decode(src)
				require.Zero(t, n)
				require.ErrorIs(t, err, codec.ErrMalformed, "length %d", length)
				require.NotErrorIs(t, err, codec.ErrShort)
				var de *codec.DecodeError
				require.ErrorAs(t, err, &de)
				require.Equal(t, "frame", de.Field)
				require.ErrorContains(t, err, "at most 8096 are allowed")
				require.GreaterOrEqual(t, de.Value, uint64(codec.MaxFrame+1))
				allocs := testing.AllocsPerRun(10, func() { _, _, _ = g.decode(src) })
				require.LessOrEqual(t, allocs, 3.0, "only the error allocates")
			}
			_, _, err := g.decode(slices.Concat(tt.before, little(8096-fixed)))
			require.ErrorIs(t, err, codec.ErrShort, "a frame of 8096 bytes is allowed")
		})
	}
}
