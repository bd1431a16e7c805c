package codec_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// responses has a response of every kind and form.
func responses[T codec.Value]() []codec.Response {
	k, long := []byte("key"), bytes.Repeat([]byte("k"), codec.MaxKey)
	ttl := codec.TTL[T]{Amount: ^T(0) - 1, Unit: codec.Seconds}
	usage := codec.Usage{ReadsPerMinute: 1, WritesPerMinute: 1 << 40, Reads: 3, Writes: 4}
	return []codec.Response{
		codec.Success,
		codec.Failure,
		codec.QueryResponse[T]{},
		codec.QueryResponse[T]{Found: true, Quota: ^T(0) - 2, TTL: ttl},
		codec.GetResponse[T]{},
		codec.GetResponse[T]{Found: true, TTL: ttl, Value: []byte{}},
		codec.GetResponse[T]{Found: true, TTL: ttl, Value: long},
		codec.Event[T]{Channel: []byte{}, Payload: []byte{}},
		codec.Event[T]{Channel: k, Payload: long},
		codec.ListResponse[T]{},
		codec.ListResponse[T]{Fragments: [][]codec.ListEntry[T]{
			{{Key: k, Buffer: true, Unit: codec.Hours, Expires: 1 << 60, Bytes: 5}, {Key: []byte{}}},
			{{Key: long, Unit: codec.Seconds, Bytes: ^T(0) - 3}},
		}},
		codec.StatResponse{},
		codec.StatResponse{Found: true, Usage: usage},
		codec.StatsResponse{},
		codec.StatsResponse{Fragments: [][]codec.StatsEntry{{{Key: k, Usage: usage}, {Key: []byte{}}}, {{Key: long}}}},
		codec.InfoResponse{Timestamp: 1 << 33, Keys: 7, ReadBytes: count(8), Version: "5.0.11"},
		codec.ConnectionsResponse{},
		codec.ConnectionsResponse{Fragments: [][]codec.ConnectionInfo{{somebody, {}}, {somebody}}},
		codec.ConnectionResponse{},
		codec.ConnectionResponse{Found: true, Connection: somebody},
		codec.ChannelsResponse{},
		codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{
			{{Name: []byte("*"), ReadBytes: 1, WriteBytes: 2, Connections: 3}, {Name: long}},
			{{Name: []byte{}, Connections: 1 << 50}},
		}},
		codec.ChannelResponse{},
		codec.ChannelResponse{Found: true, Subscribers: []codec.Subscriber{{ID: connID, Since: 1, ReadBytes: 2, WriteBytes: 3}, {Since: 4}}},
		codec.WhoAmIResponse{ID: connID},
	}
}

// pieces reads src in pieces of the sizes that next returns.
type pieces struct {
	src  []byte
	next func() int
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if len(p.src) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.src[:min(len(p.src), p.next())])
	p.src = p.src[n:]
	return n, nil
}

func TestDecoderReadsEveryKindInAnyPieces(t *testing.T) {
	t.Run("uint8", testPieces[uint8])
	t.Run("uint16", testPieces[uint16])
	t.Run("uint32", testPieces[uint32])
	t.Run("uint64", testPieces[uint64])
}

func testPieces[T codec.Value](t *testing.T) {
	all := responses[T]()
	kinds := map[codec.Kind]bool{}
	for _, res := range all {
		kinds[res.Kind()] = true
	}
	require.Len(t, kinds, int(codec.KindWhoAmI), "every kind")
	inPieces(t, func(t *testing.T, next func() int) {
		var wire []byte
		for _, res := range all {
			var err error
			wire, err = res.AppendBinary(wire)
			require.NoError(t, err)
		}
		dec := codec.NewDecoder[T](&pieces{wire, next})
		for _, want := range all {
			got, err := dec.Response(want.Kind())
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := dec.Response(codec.KindStatus)
		require.Equal(t, io.EOF, err)
	})
	inPieces(t, func(t *testing.T, next func() int) {
		for _, want := range all {
			if feed := feeds[T]()[want.Kind()]; feed != nil {
				src, err := want.AppendBinary(nil)
				require.NoError(t, err)
				require.Equal(t, want, feed(t, src, next))
			}
		}
	})
}

// inPieces runs do for pieces of one byte, and for random ones.
func inPieces(t *testing.T, do func(t *testing.T, next func() int)) {
	t.Run("one byte at a time", func(t *testing.T) { do(t, func() int { return 1 }) })
	for seed := range uint64(20) {
		t.Run("random pieces", func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			most := 1 + rnd.IntN(300)
			do(t, func() int { return 1 + rnd.IntN(most) })
		})
	}
}
