package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// How long do an UPDATE, which is most requests, and the response to a QUERY take?
func BenchmarkFrames(b *testing.B) {
	update := codec.Update[uint16]{Attribute: codec.Quota, Change: codec.Increase, Value: 3, Key: []byte("user:42/1700000000")}
	response := codec.QueryResponse[uint16]{Found: true, Quota: 500, TTL: codec.TTL[uint16]{Amount: 90, Unit: codec.Seconds}}
	src, err := response.AppendBinary(nil)
	require.NoError(b, err)
	buf := make([]byte, 0, 64)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = update.AppendBinary(buf[:0])
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			response, _, _ = codec.DecodeQueryResponse[uint16](src)
		}
	})
}
