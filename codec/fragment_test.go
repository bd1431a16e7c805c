package codec_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// fragmented is a response that comes in fragments, and the function that decodes it in
// pieces of the sizes that next returns.
type fragmented struct {
	src   []byte
	whole codec.Response
	feed  func(t testing.TB, src []byte, next func() int) codec.Response
	kind  codec.Kind
}

// fed returns the function feed of a decoder of entries of type E. It copies the entries.
func fed[E codec.FragmentEntry[E]](named func(e E) E, response func([][]E) codec.Response) func(testing.TB, []byte, func() int) codec.Response {
	return func(t testing.TB, src []byte, next func() int) codec.Response {
		var d codec.FragmentDecoder[E]
		var all [][]E
		for len(src) > 0 && !d.Done() {
			piece := bytes.Clone(src[:min(len(src), next())])
			src = src[len(piece):]
			for {
				entries, n, err := d.Decode(piece)
				piece = piece[n:]
				if err != nil {
					require.ErrorIs(t, err, codec.ErrShort)
					require.Empty(t, piece)
					require.Nil(t, entries)
					break
				}
				if d.Done() && entries == nil {
					break
				}
				kept := make([]E, len(entries))
				for i, e := range entries {
					kept[i] = named(e)
				}
				if len(kept) > 0 {
					all = append(all, kept)
				}
				if d.Done() {
					break
				}
			}
			for i := range piece {
				piece[i] = 0xff // the decoder may not come back to it
			}
		}
		require.True(t, d.Done())
		entries, n, err := d.Decode([]byte{1, 2, 3})
		require.NoError(t, err)
		require.Zero(t, n)
		require.Nil(t, entries)
		return response(all)
	}
}

// feeds are the kinds of responses that come in fragments, and their decoders.
func feeds[T codec.Value]() map[codec.Kind]func(testing.TB, []byte, func() int) codec.Response {
	return map[codec.Kind]func(testing.TB, []byte, func() int) codec.Response{
		codec.KindList: fed(func(e codec.ListEntry[T]) codec.ListEntry[T] {
			e.Key = append([]byte{}, e.Key...)
			return e
		}, func(all [][]codec.ListEntry[T]) codec.Response { return codec.ListResponse[T]{Fragments: all} }),
		codec.KindStats: fed(func(e codec.StatsEntry) codec.StatsEntry {
			e.Key = append([]byte{}, e.Key...)
			return e
		}, func(all [][]codec.StatsEntry) codec.Response { return codec.StatsResponse{Fragments: all} }),
		codec.KindConnections: fed(func(e codec.ConnectionInfo) codec.ConnectionInfo { return e },
			func(all [][]codec.ConnectionInfo) codec.Response { return codec.ConnectionsResponse{Fragments: all} }),
		codec.KindChannels: fed(func(e codec.ChannelsEntry) codec.ChannelsEntry {
			e.Name = append([]byte{}, e.Name...)
			return e
		}, func(all [][]codec.ChannelsEntry) codec.Response { return codec.ChannelsResponse{Fragments: all} }),
	}
}

// recorded are the large responses of a real server.
func recorded(t testing.TB) map[string]fragmented {
	rec := readRecorded(t)
	all := map[string]fragmented{
		"LIST":        {src: unhex(t, rec.List), kind: codec.KindList},
		"STATS":       {src: unhex(t, rec.Stats), kind: codec.KindStats},
		"CONNECTIONS": {src: unhex(t, rec.Connections), kind: codec.KindConnections},
		"CHANNELS":    {src: unhex(t, rec.Channels), kind: codec.KindChannels},
	}
	for name, r := range all {
		res, n, err := codec.DecodeResponse[uint16](r.kind, r.src)
		require.NoError(t, err)
		require.Equal(t, len(r.src), n)
		r.whole = res
		r.feed = feeds[uint16]()[r.kind]
		all[name] = r
	}
	return all
}

func TestFragmentDecoderDecodesAnyPieces(t *testing.T) {
	for name, r := range recorded(t) {
		t.Run(name+"/one byte at a time", func(t *testing.T) {
			require.Equal(t, r.whole, r.feed(t, r.src, func() int { return 1 }))
		})
		t.Run(name+"/at once", func(t *testing.T) {
			require.Equal(t, r.whole, r.feed(t, r.src, func() int { return len(r.src) }))
		})
		for seed := range uint64(20) {
			t.Run(name+"/random pieces", func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				most := 1 + rnd.IntN(600)
				require.Equal(t, r.whole, r.feed(t, r.src, func() int { return 1 + rnd.IntN(most) }))
			})
		}
	}
}

func TestEmptyListEndsAfterItsCount(t *testing.T) {
	var d codec.ListDecoder[uint16]
	entries, n, err := d.Decode([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00more"))
	require.NoError(t, err)
	require.Equal(t, 9, n)
	require.Nil(t, entries)
	require.True(t, d.Done())
}

func TestFragmentDecoderStopsAtTheEndOfAFragment(t *testing.T) {
	r := recorded(t)["CONNECTIONS"]
	var d codec.ConnectionsDecoder
	src := append(bytes.Clone(r.src), "more"...)
	entries, n, err := d.Decode(src)
	require.NoError(t, err)
	require.Equal(t, 9+16+8*237, n)
	require.Len(t, entries, 8)
	require.False(t, d.Done())
	entries, n, err = d.Decode(src[n:])
	require.NoError(t, err)
	require.Equal(t, 16+4*237, n)
	require.Len(t, entries, 4)
	require.True(t, d.Done())
}

// The offset of an error is the same for a whole response and for one in pieces, and the
// error stays.
func TestMalformedFragmentErrorsNameTheOffset(t *testing.T) {
	list := recorded(t)["LIST"].src
	with := func(offset int, b byte) []byte {
		src := bytes.Clone(list)
		src[offset] = b
		return src
	}
	second := bytes.Index(list, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 2), 56))
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
				var err error
				for src := tt.src; len(src) > 0 && (err == nil || errors.Is(err, codec.ErrShort)); {
					_, n, err = d.Decode(src[:min(piece, len(src))])
					src = src[n:]
				}
				require.Equal(t, &tt.want, err)
				_, n, err = d.Decode(list)
				require.Equal(t, &tt.want, err)
				require.Zero(t, n)
				require.False(t, d.Done())
			}
		})
	}
}

// A fragment longer than MaxFragment is malformed. The error has the offset of its start.
func TestMaxFragmentBoundsFragments(t *testing.T) {
	list := recorded(t)["LIST"].src
	whole, _, err := codec.DecodeListResponse[uint16](list)
	require.NoError(t, err)
	decode := func(most uint64, piece int, src []byte) error {
		d := codec.ListDecoder[uint16]{MaxFragment: most}
		for !d.Done() {
			_, n, err := d.Decode(src[:min(piece, len(src))])
			src = src[n:]
			if err != nil && !errors.Is(err, codec.ErrShort) || len(src) == 0 {
				return err
			}
		}
		return nil
	}
	offset, first := int64(9), uint64(0)
	var longest codec.DecodeError
	for i, entries := range whole.Fragments {
		length := uint64(0)
		for _, e := range entries {
			length += 13 + uint64(len(e.Key))
		}
		if i == 0 {
			first = length
		}
		if length > longest.Value {
			longest = codec.DecodeError{Offset: offset, Field: "fragment", Value: length, Err: codec.ErrMalformed}
		}
		offset += 16 + int64(length)
	}
	for _, piece := range []int{1, 100, len(list)} {
		require.NoError(t, decode(longest.Value, piece, list))
		err := decode(longest.Value-1, piece, list)
		var de *codec.DecodeError
		require.ErrorAs(t, err, &de)
		require.LessOrEqual(t, de.Offset, longest.Offset)
		err = decode(first-1, piece, list)
		require.ErrorAs(t, err, &de)
		require.Equal(t, codec.DecodeError{Offset: 9, Field: "fragment", Value: first, Err: codec.ErrMalformed}, *de)
		require.ErrorContains(t, err, "too long")
		for name, src := range hostile() {
			if name != "fragments" && name != "empty fragments" {
				require.ErrorIs(t, decode(1<<40, piece, src), codec.ErrMalformed, name)
			}
		}
	}
}

// hostile are beginnings of responses that announce more than can arrive.
func hostile() map[string][]byte {
	huge := binary.LittleEndian.AppendUint64(nil, math.MaxUint64)
	one := binary.LittleEndian.AppendUint64(nil, 1)
	entry := make([]byte, 237)
	return map[string][]byte{
		"fragments":              slices.Concat([]byte{1}, huge),
		"empty fragments":        slices.Concat([]byte{1}, huge, one, make([]byte, 8)),
		"entries":                slices.Concat([]byte{1}, one, one, huge),
		"entries, some of them":  slices.Concat([]byte{1}, one, one, huge, entry, entry),
		"fragments and entries":  slices.Concat([]byte{1}, huge, one, huge, entry),
		"entries times the size": slices.Concat([]byte{1}, one, one, binary.LittleEndian.AppendUint64(nil, math.MaxUint64/13+2), entry),
	}
}

func TestLargeCountsDoNotAllocate(t *testing.T) {
	for name, src := range hostile() {
		t.Run(name, func(t *testing.T) {
			short := func(decode func() error) {
				t.Helper()
				require.ErrorIs(t, decode(), codec.ErrShort)
				require.Zero(t, testing.AllocsPerRun(10, func() { _ = decode() }))
			}
			short(func() error { _, _, err := codec.DecodeListResponse[uint16](src); return err })
			short(func() error { _, _, err := codec.DecodeStatsResponse(src); return err })
			short(func() error { _, _, err := codec.DecodeConnectionsResponse(src); return err })
			short(func() error { _, _, err := codec.DecodeChannelsResponse(src); return err })
			// The decoder holds what has arrived, and no more.
			require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
				var d codec.ListDecoder[uint16]
				_, _, _ = d.Decode(src)
			}), 16.0)
		})
	}
	t.Run("subscribers", func(t *testing.T) {
		for _, count := range []uint64{1, 1 << 40, math.MaxUint64 / 40, math.MaxUint64} {
			src := binary.LittleEndian.AppendUint64([]byte{1}, count)
			_, _, err := codec.DecodeChannelResponse(src)
			require.ErrorIs(t, err, codec.ErrShort)
			require.Zero(t, testing.AllocsPerRun(10, func() { _, _, _ = codec.DecodeChannelResponse(src) }))
		}
	})
}

// A response of empty fragments without end is decoded in time that is linear in the bytes
// that have arrived.
func TestManyEmptyFragmentsTakeLinearTime(t *testing.T) {
	src := binary.LittleEndian.AppendUint64([]byte{1}, math.MaxUint64)
	for i := range uint64(1000) {
		src = binary.LittleEndian.AppendUint64(src, i+1)
		src = binary.LittleEndian.AppendUint64(src, 0)
	}
	_, _, err := codec.DecodeStatsResponse(src)
	require.ErrorIs(t, err, codec.ErrShort)
	var d codec.StatsDecoder
	fragments := 0
	for {
		entries, n, err := d.Decode(src)
		src = src[n:]
		if err != nil {
			require.ErrorIs(t, err, codec.ErrShort)
			break
		}
		require.NotNil(t, entries)
		require.Empty(t, entries)
		fragments++
	}
	require.Equal(t, 1000, fragments)
}

func TestFragmentDecoderHoldsOneFragment(t *testing.T) {
	one := codec.ListResponse[uint16]{}
	entries := make([]codec.ListEntry[uint16], 50)
	for i := range entries {
		entries[i].Key = bytes.Repeat([]byte("k"), 30)
	}
	for range 1000 {
		one.Fragments = append(one.Fragments, entries)
	}
	src, err := one.AppendBinary(nil)
	require.NoError(t, err)
	// 50,000 entries: the memory depends on the fragments, not on the response.
	allocs := testing.AllocsPerRun(5, func() {
		var d codec.ListDecoder[uint16]
		for rest := src; !d.Done(); {
			piece := rest[:min(len(rest), 100)]
			for len(piece) > 0 {
				_, n, _ := d.Decode(piece)
				piece = piece[n:]
				rest = rest[n:]
			}
		}
	})
	require.Less(t, allocs, 60.0)
}
