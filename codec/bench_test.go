package codec_test

import (
	"testing"

	"github.com/throttr-go/throttr/codec"
)

// How long do the frames of a hit take?

func BenchmarkUpdate(b *testing.B) {
	m := codec.Update[uint16]{Attribute: codec.Quota, Change: codec.Increase, Value: 3, Key: []byte("user:42/1700000000")}
	benchmarkFrame(b, m, codec.DecodeUpdate[uint16])
}

func BenchmarkQueryResponse(b *testing.B) {
	m := codec.QueryResponse[uint16]{Found: true, Quota: 500, TTL: codec.TTL[uint16]{Amount: 90, Unit: codec.Seconds}}
	benchmarkFrame(b, m, codec.DecodeQueryResponse[uint16])
}

func benchmarkFrame[M codec.Frame](b *testing.B, m M, decode func(src []byte) (M, int, error)) {
	buf := make([]byte, 0, 64)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = m.AppendBinary(buf[:0])
		}
	})
	b.Run("decode", func(b *testing.B) {
		src, err := m.AppendBinary(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := decode(src); err != nil {
				b.Fatal(err)
			}
		}
	})
}
