package throttr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestMethodsReturnWhatTheServerDoes(t *testing.T) {
	t.Run("uint8", testClientMethods[uint8])
	t.Run("uint16", testClientMethods[uint16])
	t.Run("uint32", testClientMethods[uint32])
	t.Run("uint64", testClientMethods[uint64])
}

func testClientMethods[T codec.Value](t *testing.T) {
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
	left := codec.TTL[T]{Amount: 99, Unit: codec.Seconds} // rounded down
	require.Equal(t, throttr.Counter[T]{Quota: 8, TTL: left}, c)

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

func TestRequestThatCannotBeEncodedIsNotSent(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithValueSize(1))
	client := testkit.Connect[uint8](t, srv, throttr.Config{})
	ctx, long := t.Context(), string(make([]byte, 256))
	for range 3 { // a call that could not be encoded is used again
		errs := map[string]error{}
		_, _, errs["query"] = client.Query(ctx, long)
		_, _, errs["stat"] = client.Stat(ctx, long)
		_, _, errs["channel"] = client.Channel(ctx, long)
		_, errs["publish"] = client.Publish(ctx, long, nil)
		_, errs["payload"] = client.Publish(ctx, "c", make([]byte, 256))
		_, errs["set"] = client.Set(ctx, "k", make([]byte, 256), codec.TTL[uint8]{Amount: 1, Unit: codec.Minutes})
		for name, err := range errs {
			require.ErrorIs(t, err, codec.ErrTooLarge, name)
		}
		ok, err := client.Purge(ctx, long[:255])
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.Equal(t, 1, srv.Requests(codec.OpQuery), "that of the probe")
	require.Zero(t, srv.Requests(codec.OpStat)+srv.Requests(codec.OpChannel)+srv.Requests(codec.OpPublish)+srv.Requests(codec.OpSet))
}
