package codec_test

import (
	"testing"

	"github.com/throttr-go/throttr/codec"
)

// Each benchmark here asks how much the codec costs beside the same bytes moved by hand (hand_test.go).

// besideHand measures an encoder and a decoder of one frame.
func besideHand[M any](b *testing.B, m codec.Frame, hand func(dst []byte) ([]byte, error), decode, handDecode func(src []byte) (M, int, error)) {
	for name, encode := range map[string]func([]byte) ([]byte, error){"codec": m.AppendBinary, "hand": hand} {
		b.Run("encode/"+name, func(b *testing.B) {
			buf := make([]byte, 0, 64)
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = encode(buf[:0])
			}
		})
	}
	src, err := m.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func([]byte) (M, int, error){"codec": decode, "hand": handDecode} {
		b.Run("decode/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := decode(src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	m := codec.Update[uint16]{Attribute: codec.Quota, Change: codec.Increase, Value: 3, Key: []byte("user:42/1700000000")}
	besideHand(b, m, func(dst []byte) ([]byte, error) {
		return handAppendUpdate(dst, byte(m.Attribute), byte(m.Change), m.Value, m.Key)
	}, codec.DecodeUpdate[uint16], handDecodeUpdate)
}

func BenchmarkQueryResponse(b *testing.B) {
	m := codec.QueryResponse[uint16]{Found: true, Quota: 500, TTL: codec.TTL[uint16]{Amount: 90, Unit: codec.Seconds}}
	besideHand(b, m, func(dst []byte) ([]byte, error) {
		return handAppendQueryResponse(dst, m.Found, m.Quota, byte(m.TTL.Unit), m.TTL.Amount)
	}, codec.DecodeQueryResponse[uint16], handDecodeQueryResponse)
}
