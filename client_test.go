package throttr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestEachMethodAsksOneRequest(t *testing.T) {
	t.Run("uint8", testEachMethod[uint8])
	t.Run("uint16", testEachMethod[uint16])
	t.Run("uint32", testEachMethod[uint32])
	t.Run("uint64", testEachMethod[uint64])
}

func testEachMethod[T codec.Value](t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithVirtualClock())
	client := testkit.Connect[T](t, srv, throttr.Config{})
	ctx := t.Context()
	ttl := codec.TTL[T]{Amount: 100, Unit: codec.Seconds}

	ok, err := client.Insert(ctx, "k", 5, ttl)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = client.Insert(ctx, "k", 5, ttl)
	require.NoError(t, err)
	require.False(t, ok, "a second INSERT")

	ok, err = client.Update(ctx, "k", codec.Quota, codec.Increase, 3)
	require.NoError(t, err)
	require.True(t, ok)
	c, ok, err := client.Query(ctx, "k")
	require.NoError(t, err)
	require.True(t, ok)
	left := codec.TTL[T]{Amount: 99, Unit: codec.Seconds}
	require.Equal(t, throttr.Counter[T]{Quota: 8, TTL: left}, c, "a request takes time, and what remains is floored")

	ok, err = client.Update(ctx, "k", codec.Quota, codec.Decrease, 9)
	require.NoError(t, err)
	require.False(t, ok, "DECREASE below zero")
	ok, err = client.Update(ctx, "k", codec.TimeToLive, codec.Decrease, 40)
	require.NoError(t, err)
	require.True(t, ok)
	c, _, err = client.Query(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, T(59), c.TTL.Amount)

	ok, err = client.Purge(ctx, "k")
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = client.Purge(ctx, "k")
	require.NoError(t, err)
	require.False(t, ok, "a second PURGE")
	_, ok, err = client.Query(ctx, "k")
	require.NoError(t, err)
	require.False(t, ok)

	ok, err = client.Set(ctx, "b", []byte("bytes"), ttl)
	require.NoError(t, err)
	require.True(t, ok)
	b, ok, err := client.Get(ctx, "b")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, throttr.Buffer[T]{Value: []byte("bytes"), TTL: left}, b)
	_, ok, err = client.Get(ctx, "none")
	require.NoError(t, err)
	require.False(t, ok)
}

func TestABatchAnswersEachRequest(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	ttl := codec.TTL[uint16]{Amount: 100, Unit: codec.Seconds}
	var b throttr.Batch[uint16]
	insert := b.Insert("k", 1, ttl)
	increase := b.Update("k", codec.Quota, codec.Increase, 2)
	query := b.Query("k")
	missing := b.Query("none")
	purge := b.Purge("k")
	_, err := insert.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)

	require.NoError(t, client.Do(t.Context(), &b))
	for name, r := range map[string]throttr.Reply[uint16]{"insert": insert, "increase": increase, "purge": purge} {
		ok, err := r.OK()
		require.NoError(t, err, name)
		require.True(t, ok, name)
	}
	c, ok, err := query.Counter()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, uint16(3), c.Quota)
	_, ok, err = missing.Counter()
	require.NoError(t, err)
	require.False(t, ok)

	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	b.Reset()
	require.NoError(t, client.Do(t.Context(), &b), "an empty batch")
}

func TestABatchLargerThanTheFlightTakesSeveralRoundTrips(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{MaxInFlight: 7, MaxConns: 1})
	ttl := codec.TTL[uint16]{Amount: 100, Unit: codec.Seconds}
	var b throttr.Batch[uint16]
	b.Insert("k", 0, ttl)
	var last throttr.CounterReply[uint16]
	for range 100 {
		b.Update("k", codec.Quota, codec.Increase, 1)
		last = b.Query("k")
	}
	require.NoError(t, client.Do(t.Context(), &b))
	c, ok, err := last.Counter()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, uint16(100), c.Quota)
}

func TestConnectToNobodyFails(t *testing.T) {
	_, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{"127.0.0.1:1"}})
	require.ErrorIs(t, err, throttr.ErrConnect)
}

func TestAServerOfAnotherValueSizeIsLeftAlone(t *testing.T) {
	for size := 1; size <= 8; size *= 2 {
		srv := mockserver.RunT(t, mockserver.WithValueSize(size))
		cfg := throttr.Config{Servers: []string{srv.Addr()}}
		for want, connect := range map[int]func() (*throttr.Client[uint16], error){
			2: func() (*throttr.Client[uint16], error) { return throttr.Connect[uint16](t.Context(), cfg) },
			1: func() (*throttr.Client[uint16], error) {
				_, err := throttr.Connect[uint8](t.Context(), cfg)
				return nil, err
			},
			4: func() (*throttr.Client[uint16], error) {
				_, err := throttr.Connect[uint32](t.Context(), cfg)
				return nil, err
			},
			8: func() (*throttr.Client[uint16], error) {
				_, err := throttr.Connect[uint64](t.Context(), cfg)
				return nil, err
			},
		} {
			if want == size {
				continue
			}
			_, err := connect()
			require.ErrorIs(t, err, throttr.ErrValueSizeMismatch)
			var mismatch *throttr.ValueSizeError
			require.ErrorAs(t, err, &mismatch)
			require.Equal(t, want, mismatch.Client)
			require.Equal(t, size, mismatch.Actual)
		}
		require.Empty(t, srv.Violations())
		require.Empty(t, srv.Keys(), "the probe leaves nothing behind")
		got, err := throttr.ProbeValueSize(t.Context(), cfg, srv.Addr())
		require.NoError(t, err)
		require.Equal(t, size, got)
	}
}
