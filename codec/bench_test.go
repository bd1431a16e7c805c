package codec_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Each benchmark here asks how much the codec costs beside the same bytes moved by hand
// (hand_test.go), as the ratio of their times:
//
//	go test ./codec -run '^$' -bench . -count 6 -cpu 1

// frames is how many frames a turn has, one behind the other as on a connection.
const frames = 500

// beside runs the codec and the hand-written code in turns, under the same conditions. It
// reports the time per frame in the fastest turn of each, and the ratio of the two. An op is
// one turn of both.
func beside(b *testing.B, ours, hand func()) {
	fastest := func(turn func(), before time.Duration) time.Duration {
		start := time.Now()
		turn()
		return min(time.Since(start), before)
	}
	first, second := time.Hour, time.Hour
	b.ReportAllocs()
	for b.Loop() {
		first, second = fastest(ours, first), fastest(hand, second)
	}
	b.ReportMetric(float64(first)/frames, "codec-ns")
	b.ReportMetric(float64(second)/frames, "hand-ns")
	b.ReportMetric(float64(first)/float64(second), "ratio")
}

var (
	benchInsert = codec.Insert[uint16]{
		Key: []byte("user:42/1700000000"), Quota: 500,
		TTL: codec.TTL[uint16]{Amount: 90, Unit: codec.Seconds},
	}
	benchUpdate = codec.Update[uint16]{
		Attribute: codec.Quota, Change: codec.Increase, Value: 3, Key: benchInsert.Key,
	}
	benchAnswer = codec.QueryResponse[uint16]{Found: true, Quota: 500, TTL: benchInsert.TTL}
)

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
	b.Run("encode", func(b *testing.B) {
		buf := make([]byte, 0, frames*64)
		turn := func(encode func([]byte) ([]byte, error)) func() {
			return func() {
				buf = buf[:0]
				for range frames {
					buf, _ = encode(buf)
				}
			}
		}
		beside(b, turn(m.AppendBinary), turn(hand))
	})
	b.Run("decode", func(b *testing.B) {
		src := bytes.Repeat(encoded(b, m), frames)
		turn := func(decode func([]byte) (M, int, error)) func() {
			return func() {
				for rest := src; len(rest) > 0; {
					m, n, err := decode(rest)
					if err != nil {
						b.Fatal(err)
					}
					runtime.KeepAlive(&m)
					rest = rest[n:]
				}
			}
		}
		beside(b, turn(decode), turn(handDecode))
	})
}

func BenchmarkUpdate(b *testing.B) {
	m := benchUpdate
	besideHand(b, m, func(dst []byte) ([]byte, error) {
		return handAppendUpdate(dst, byte(m.Attribute), byte(m.Change), m.Value, m.Key)
	}, codec.DecodeUpdate[uint16], handDecodeUpdate)
}

func BenchmarkQueryResponse(b *testing.B) {
	m := benchAnswer
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
			entries[i] = codec.ListEntry[uint16]{Key: benchInsert.Key, Unit: codec.Seconds, Bytes: 2}
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
