package codec_test

import (
	"testing"

	"github.com/throttr-go/throttr/codec"
)

// Each benchmark here asks how much the codec costs beside the same bytes moved by hand (hand_test.go).

// encoded returns the bytes of m, for the decoders.
func encoded(b *testing.B, m codec.Frame) []byte {
	b.Helper()
	src, err := m.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	return src
}

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
	src := encoded(b, m)
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

// manyKeys is the response to a LIST of 10,000 keys, in fragments of 50.
func manyKeys(b *testing.B) []byte {
	m := codec.ListResponse[uint16]{}
	for range 200 {
		entries := make([]codec.ListEntry[uint16], 50)
		for i := range entries {
			entries[i] = codec.ListEntry[uint16]{Key: []byte("user:42/1700000000"), Unit: codec.Seconds, Bytes: 2}
		}
		m.Fragments = append(m.Fragments, entries)
	}
	return encoded(b, m)
}

// How long does a LIST of 10,000 keys take, as it arrives in pieces of 4 KiB and
// whole?
func BenchmarkDecodeList(b *testing.B) {
	src := manyKeys(b)
	b.Run("as it arrives", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			var d codec.ListDecoder[uint16]
			for rest := src; !d.Done(); {
				piece := rest[:min(len(rest), 4<<10)]
				rest = rest[len(piece):]
				for len(piece) > 0 {
					_, n, err := d.Decode(piece)
					if err != nil && n < len(piece) {
						b.Fatal(err)
					}
					piece = piece[n:]
				}
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(src)))
		for b.Loop() {
			if _, _, err := codec.DecodeListResponse[uint16](src); err != nil {
				b.Fatal(err)
			}
		}
	})
}
