package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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

func TestCounterFramesDoNotAllocate(t *testing.T) {
	testCounters[uint8](t)
	testCounters[uint16](t)
	testCounters[uint32](t)
	testCounters[uint64](t)
}

func testCounters[T codec.Value](t *testing.T) {
	key, ttl := []byte("user:42"), codec.TTL[T]{Amount: 60, Unit: codec.Seconds}
	requireNoAllocs(t, codec.Insert[T]{Key: key, Quota: 5, TTL: ttl}, codec.DecodeInsert[T])
	requireNoAllocs(t, codec.Query{Key: key}, codec.DecodeQuery)
	requireNoAllocs(t, codec.Update[T]{Change: codec.Increase, Value: 1, Key: key}, codec.DecodeUpdate[T])
	requireNoAllocs(t, codec.Purge{Key: key}, codec.DecodePurge)
	requireNoAllocs(t, codec.QueryResponse[T]{Found: true, Quota: 5, TTL: ttl}, codec.DecodeQueryResponse[T])
	requireNoAllocs(t, codec.Success, codec.DecodeStatus)
}

func requireNoAllocs[M codec.Frame](t *testing.T, m M, decode func(src []byte) (M, int, error)) {
	var src []byte
	buf := make([]byte, 0, 1024)
	require.Zero(t, testing.AllocsPerRun(100, func() { src, _ = m.AppendBinary(buf) }), "encoding %#v", m)
	require.Zero(t, testing.AllocsPerRun(100, func() { m, _, _ = decode(src) }), "decoding %#v", m)
}
