package throttr_test

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// Frames of another size than the server's can crash it.
func TestNoClientConvertsToOneOfAnotherValueSize(t *testing.T) {
	for from, to := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[throttr.Client[uint32]]():       reflect.TypeFor[throttr.Client[uint8]](),
		reflect.TypeFor[throttr.Batch[uint32]]():        reflect.TypeFor[throttr.Batch[uint8]](),
		reflect.TypeFor[throttr.Reply[uint32]]():        reflect.TypeFor[throttr.Reply[uint8]](),
		reflect.TypeFor[throttr.CounterReply[uint32]](): reflect.TypeFor[throttr.CounterReply[uint8]](),
		reflect.TypeFor[throttr.BufferReply[uint32]]():  reflect.TypeFor[throttr.BufferReply[uint8]](),
	} {
		require.False(t, from.ConvertibleTo(to), from)
	}
}

func TestRequestThatCannotBeEncodedIsNotSent(t *testing.T) {
	srv, client := testkit.Start[uint8](t, throttr.Config{})
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

// The caller may change a Config once a client has it.
func TestAClientKeepsItsServers(t *testing.T) {
	servers := testkit.Several(t, 2)
	cfg := servers.Over(throttr.Config{})
	client := testkit.Client[uint16](t, cfg)
	who, err := client.WhoAmI(t.Context())
	require.NoError(t, err)
	slices.Reverse(cfg.Servers)
	for _, c := range who {
		_, found, err := client.Connection(t.Context(), c.Server, c.ID)
		require.NoError(t, err)
		require.True(t, found)
	}
}

// If one of several servers can't be reached, the connections to the others are closed.
func TestFailedConnectLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble waits for all goroutines
		servers := testkit.Several(t, 2)
		servers[1].Refuse(true)
		_, err := throttr.Connect[uint16](t.Context(), servers.Over(throttr.Config{}))
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.ErrorContains(t, err, servers[1].Addr())
		synctest.Wait()
		require.Zero(t, servers[0].Conns())
	})
}
