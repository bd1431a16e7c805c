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
	t.Run("uint8", testCountersAllocateNothing[uint8])
	t.Run("uint16", testCountersAllocateNothing[uint16])
	t.Run("uint32", testCountersAllocateNothing[uint32])
	t.Run("uint64", testCountersAllocateNothing[uint64])
}

func testCountersAllocateNothing[T codec.Value](t *testing.T) {
	ttl := codec.TTL[T]{Amount: 60, Unit: codec.Seconds}
	insert := codec.Insert[T]{Key: []byte("user:42"), Quota: 5, TTL: ttl}
	query := codec.Query{Key: insert.Key}
	update := codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: insert.Key}
	purge := codec.Purge{Key: insert.Key}
	response := codec.QueryResponse[T]{Found: true, Quota: 5, TTL: ttl}
	status := codec.Success
	for name, c := range map[string]struct {
		frame  codec.Frame
		decode func(src []byte)
	}{
		"INSERT":         {insert, func(src []byte) { insert, _, _ = codec.DecodeInsert[T](src) }},
		"QUERY":          {query, func(src []byte) { query, _, _ = codec.DecodeQuery(src) }},
		"UPDATE":         {update, func(src []byte) { update, _, _ = codec.DecodeUpdate[T](src) }},
		"PURGE":          {purge, func(src []byte) { purge, _, _ = codec.DecodePurge(src) }},
		"QUERY response": {response, func(src []byte) { response, _, _ = codec.DecodeQueryResponse[T](src) }},
		"status":         {status, func(src []byte) { status, _, _ = codec.DecodeStatus(src) }},
	} {
		var src []byte
		buf := make([]byte, 0, 1024)
		require.Zero(t, testing.AllocsPerRun(100, func() { src, _ = c.frame.AppendBinary(buf) }), "encoding %s", name)
		require.Zero(t, testing.AllocsPerRun(100, func() { c.decode(src) }), "decoding %s", name)
	}
}
