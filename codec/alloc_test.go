package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestCounterFramesDoNotAllocate(t *testing.T) {
	t.Run("uint8", testCountersAllocateNothing[uint8])
	t.Run("uint16", testCountersAllocateNothing[uint16])
	t.Run("uint32", testCountersAllocateNothing[uint32])
	t.Run("uint64", testCountersAllocateNothing[uint64])
}

func testCountersAllocateNothing[T codec.Value](t *testing.T) {
	key := []byte("user:42")
	ttl := codec.TTL[T]{Amount: 60, Unit: codec.Seconds}
	buf := make([]byte, 0, 1024)
	encode := func(name string, frame interface {
		AppendBinary([]byte) ([]byte, error)
	}, do func()) []byte {
		t.Helper()
		require.Zero(t, testing.AllocsPerRun(100, do), "encoding %s", name)
		b, err := frame.AppendBinary(nil)
		require.NoError(t, err)
		return b
	}
	decode := func(name string, do func()) {
		t.Helper()
		require.Zero(t, testing.AllocsPerRun(100, do), "decoding %s", name)
	}

	insert := codec.Insert[T]{Key: key, Quota: 5, TTL: ttl}
	b := encode("INSERT", insert, func() { buf, _ = insert.AppendBinary(buf[:0]) })
	decode("INSERT", func() { insert, _, _ = codec.DecodeInsert[T](b) })

	query := codec.Query{Key: key}
	b2 := encode("QUERY", query, func() { buf, _ = query.AppendBinary(buf[:0]) })
	decode("QUERY", func() { query, _, _ = codec.DecodeQuery(b2) })

	update := codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: key}
	b3 := encode("UPDATE", update, func() { buf, _ = update.AppendBinary(buf[:0]) })
	decode("UPDATE", func() { update, _, _ = codec.DecodeUpdate[T](b3) })

	purge := codec.Purge{Key: key}
	b4 := encode("PURGE", purge, func() { buf, _ = purge.AppendBinary(buf[:0]) })
	decode("PURGE", func() { purge, _, _ = codec.DecodePurge(b4) })

	response := codec.QueryResponse[T]{Found: true, Quota: 5, TTL: ttl}
	b5 := encode("QUERY response", response, func() { buf, _ = response.AppendBinary(buf[:0]) })
	decode("QUERY response", func() { response, _, _ = codec.DecodeQueryResponse[T](b5) })

	status := codec.Success
	b6 := encode("status", status, func() { buf, _ = status.AppendBinary(buf[:0]) })
	decode("status", func() { status, _, _ = codec.DecodeStatus(b6) })
}
