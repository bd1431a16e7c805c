package throttr_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

func TestInspectionReportsAllServersInOrder(t *testing.T) {
	servers := testkit.Several(t, 3)
	client := testkit.Client[uint16](t, servers.Over(throttr.Config{MaxRetries: -1}))
	ctx := t.Context()
	for i := range 300 {
		client.Insert(ctx, strconv.Itoa(i), 1, testkit.Minute)
	}
	all := testkit.Subscribe(t, client, pubsub.All)
	ok, err := client.Publish(ctx, pubsub.All, []byte("once"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "once", string(testkit.Next(t, all).Payload))
	list, err := testkit.Collect(t, client.List(ctx))
	require.NoError(t, err)
	require.Len(t, list, 300)
	stats, err := testkit.Collect(t, client.KeyStats(ctx))
	require.NoError(t, err)
	require.Len(t, stats, 300)
	connections, err := testkit.Collect(t, client.Connections(ctx))
	require.NoError(t, err)
	info, err := client.Info(ctx)
	require.NoError(t, err)
	who, err := client.WhoAmI(ctx)
	require.NoError(t, err)
	subscribers, ok, err := client.Channel(ctx, "*")
	require.NoError(t, err)
	require.True(t, ok)
	i, published := 0, 0
	for s, srv := range servers {
		published += srv.Requests(codec.OpPublish)
		keys := srv.Keys()
		require.NotEmpty(t, keys)
		here := list[i : i+len(keys)]
		var got []string
		for _, e := range here {
			require.Equal(t, srv.Addr(), e.Server)
			got = append(got, e.Key)
		}
		slices.Sort(got)
		require.Equal(t, keys, got)
		i += len(keys)
		require.Equal(t, srv.Addr(), info[s].Server)
		require.Equal(t, uint64(len(keys)), info[s].Keys)
		require.Equal(t, srv.Addr(), who[s].Server)
		require.True(t, slices.ContainsFunc(connections, func(c inspect.Connection) bool {
			return c.Server == srv.Addr() && c.ID == who[s].ID
		}))
		require.Equal(t, srv.Addr(), subscribers[s].Server)
		require.NotEqual(t, who[s].ID, subscribers[s].ID, "connections for requests have unsubscribed (H21)")
		self, ok, err := client.Channel(ctx, subscribers[s].ID.String())
		require.NoError(t, err)
		require.True(t, ok, "all servers are asked for an id")
		require.Equal(t, srv.Addr(), self[0].Server)
	}
	require.Equal(t, 1, published, "one server is enough")

	servers[1].Refuse(true) // it does not hide the others
	servers[1].Disconnect()
	list, listErr := testkit.Collect(t, client.List(ctx))
	info, infoErr := client.Info(ctx)
	who, whoErr := client.WhoAmI(ctx)
	subscribers, ok, channelErr := client.Channel(ctx, "*")
	for _, err := range []error{listErr, infoErr, whoErr, channelErr} {
		require.Error(t, err)
	}
	require.True(t, ok)
	require.NotEmpty(t, subscribers)
	here := servers[0].Keys()
	require.Len(t, list, len(here)+len(servers[2].Keys()))
	require.Equal(t, []int{2, 2}, []int{len(info), len(who)})
	for i, srv := range []*mockserver.Server{servers[0], servers[2]} {
		require.Equal(t, []string{srv.Addr(), srv.Addr(), srv.Addr()}, []string{list[i*len(here)].Server, info[i].Server, who[i].Server})
	}
}
