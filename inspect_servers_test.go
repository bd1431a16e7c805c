package throttr_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

// connectAll starts n servers and returns them with a client that is closed at the end of the
// test.
func connectAll(t *testing.T, cfg throttr.Config, n int) (*throttr.Client[uint16], []*mockserver.Server) {
	t.Helper()
	servers := make([]*mockserver.Server, n)
	for i := range servers {
		servers[i] = mockserver.RunT(t)
		cfg.Servers = append(cfg.Servers, servers[i].Addr())
	}
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client, servers
}

func TestInspectionReportsAllServersInOrder(t *testing.T) {
	client, servers := connectAll(t, throttr.Config{}, 3)
	ctx := t.Context()
	for i := range 300 {
		client.Insert(ctx, strconv.Itoa(i), 1, testkit.Minute)
	}
	testkit.Subscribe(t, client, pubsub.All)
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
	i := 0
	for s, srv := range servers {
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
}

func TestServerThatIsDownDoesNotHideTheOthers(t *testing.T) {
	client, servers := connectAll(t, throttr.Config{MaxRetries: -1}, 3)
	ctx := t.Context()
	for _, srv := range servers {
		srv.Set("k", 1, time.Minute)
	}
	testkit.Subscribe(t, client, pubsub.All)
	servers[1].Refuse(true)
	servers[1].Disconnect()
	up := []string{servers[0].Addr(), servers[2].Addr()}

	list, err := testkit.Collect(t, client.List(ctx))
	require.Error(t, err)
	require.Len(t, list, 2)
	require.Equal(t, up, []string{list[0].Server, list[1].Server})
	info, err := client.Info(ctx)
	require.Error(t, err)
	require.Len(t, info, 2)
	require.Equal(t, up, []string{info[0].Server, info[1].Server})
	who, err := client.WhoAmI(ctx)
	require.Error(t, err)
	require.Len(t, who, 2)
	subscribers, ok, err := client.Channel(ctx, "*")
	require.Error(t, err)
	require.True(t, ok)
	require.NotEmpty(t, subscribers)
	require.Len(t, servers[1].Keys(), 1)
}

func TestPublishGoesToOneServer(t *testing.T) {
	client, servers := connectAll(t, throttr.Config{}, 3)
	all := testkit.Subscribe(t, client, pubsub.All)
	ok, err := client.Publish(t.Context(), pubsub.All, []byte("once"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "once", string(testkit.Next(t, all).Payload))
	published := 0
	for _, srv := range servers {
		published += srv.Requests(codec.OpPublish)
	}
	require.Equal(t, 1, published)
}
