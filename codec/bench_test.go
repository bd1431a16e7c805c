package codec_test

import (
	"testing"

	"github.com/throttr-go/throttr/codec"
)

// Each benchmark here asks how much the codec costs beside the same bytes moved
// by hand (hand_test.go): compare its two lines, codec and hand. They run one
// after the other in one process, so that they meet the same machine.
//
//	go test ./codec -run '^$' -bench . -count 6 -cpu 1

var (
	benchInsert = codec.Insert[uint16]{
		Key: []byte("user:42/1700000000"), Quota: 500,
		TTL: codec.TTL[uint16]{Amount: 90, Unit: codec.Seconds},
	}
	benchUpdate = codec.Update[uint16]{
		Attribute: codec.Quota, Change: codec.Increase, Value: 3, Key: benchInsert.Key,
	}
	benchQuery  = codec.Query{Key: benchInsert.Key}
	benchAnswer = codec.QueryResponse[uint16]{Found: true, Quota: 500, TTL: benchInsert.TTL}
)

// encoded returns m's bytes, for the decoders.
func encoded(b *testing.B, m codec.Frame) []byte {
	b.Helper()
	src, err := m.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	return src
}

func BenchmarkEncodeInsert(b *testing.B) {
	m, buf := benchInsert, make([]byte, 0, 512)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = m.AppendBinary(buf[:0])
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = handAppendInsert(buf[:0], m.Quota, byte(m.TTL.Unit), m.TTL.Amount, m.Key)
		}
	})
}

func BenchmarkDecodeInsert(b *testing.B) {
	src := encoded(b, benchInsert)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = codec.DecodeInsert[uint16](src)
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = handDecodeInsert(src)
		}
	})
}

func BenchmarkEncodeUpdate(b *testing.B) {
	m, buf := benchUpdate, make([]byte, 0, 512)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = m.AppendBinary(buf[:0])
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = handAppendUpdate(buf[:0], byte(m.Attribute), byte(m.Change), m.Value, m.Key)
		}
	})
}

func BenchmarkDecodeUpdate(b *testing.B) {
	src := encoded(b, benchUpdate)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = codec.DecodeUpdate[uint16](src)
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = handDecodeUpdate(src)
		}
	})
}

func BenchmarkEncodeQuery(b *testing.B) {
	m, buf := benchQuery, make([]byte, 0, 512)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = m.AppendBinary(buf[:0])
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = handAppendQuery(buf[:0], m.Key)
		}
	})
}

func BenchmarkDecodeQuery(b *testing.B) {
	src := encoded(b, benchQuery)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = codec.DecodeQuery(src)
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = handDecodeQuery(src)
		}
	})
}

func BenchmarkEncodeQueryResponse(b *testing.B) {
	m, buf := benchAnswer, make([]byte, 0, 512)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = m.AppendBinary(buf[:0])
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = handAppendQueryResponse(buf[:0], m.Found, m.Quota, byte(m.TTL.Unit), m.TTL.Amount)
		}
	})
}

func BenchmarkDecodeQueryResponse(b *testing.B) {
	src := encoded(b, benchAnswer)
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = codec.DecodeQueryResponse[uint16](src)
		}
	})
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = handDecodeQueryResponse(src)
		}
	})
}

// manyKeys is the answer to a LIST of 10,000 keys, in fragments of 50.
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
