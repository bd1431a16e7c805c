package throttr_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// listed lists windows by their keys and the names of their limits.
func listed(ctx context.Context, b throttr.Backend, keys ...string) (map[string]throttr.Listed, error) {
	all := map[string]throttr.Listed{}
	for l, err := range b.List(ctx, keys...) {
		if err != nil {
			return all, err
		}
		all[l.Key+"/"+l.Limit.Name] = l
	}
	return all, nil
}

func TestWindowsOfServersAreListed(t *testing.T) { synctest.Test(t, testListed) }

func testListed(t *testing.T) {
	servers := testkit.Several(t, 2)
	client := testkit.Client[uint16](t, servers.Over(throttr.Config{}))
	b, ctx := client.Backend(), t.Context()
	limiter := throttr.NewRateLimit(b)
	minute, login := throttr.Limit{Max: 5, Scale: time.Minute}, throttr.Limit{Name: "login", Max: 9, Scale: time.Hour}
	const keys = 600 // more than are read at a time, on each server
	for i := range keys {
		decided(t)(limiter.Take(ctx, "k"+strconv.Itoa(i), minute, uint64(i%5+1)))
	}
	decided(t)(limiter.Take(ctx, "k7", login, 9))
	long := strings.Repeat("x", 90)
	for _, l := range []throttr.Limit{minute, login} {
		decided(t)(limiter.Take(ctx, long, l, 2))
	}
	_, err := client.Insert(ctx, "a counter", 1, testkit.Minute)
	require.NoError(t, err)

	all, err := listed(ctx, b)
	require.NoError(t, err)
	require.Len(t, all, keys+3)
	for i := range keys {
		require.EqualValues(t, i%5+1, all["k"+strconv.Itoa(i)+"/"].Window.Count)
	}
	some, err := listed(ctx, b, "k7", "nobody", long)
	require.NoError(t, err)
	require.Len(t, some, 3, "of a long key, that of the limit without a name")
	seven := some["k7/login"]
	require.EqualValues(t, 9, seven.Window.Count)
	require.InDelta(t, time.Hour, seven.Window.Left, float64(time.Minute))
	require.LessOrEqual(t, some["k7/"].Window.Left, time.Minute)
	require.WithinDuration(t, time.Now().Add(time.Hour), seven.Window.ExpiresAt, time.Minute)
	login.Max, login.Algorithm = 0, throttr.FixedWindow
	require.Equal(t, login, seven.Limit, "servers do not store Max")
	delete(some, "k7/")
	delete(some, "k7/login")
	for _, l := range some {
		require.True(t, l.Digest)
		require.Equal(t, time.Minute, l.Limit.Scale)
	}

	n := 0
	for range b.List(ctx) {
		if n++; n == 300 {
			break
		}
	}
	require.Equal(t, 300, n)
	require.NoError(t, b.Reset(ctx, "k7", seven.Limit))
	some, err = listed(ctx, b, "k7")
	require.NoError(t, err)
	require.Len(t, some, 1, "what was reset is over")

	for _, fault := range []mockserver.Fault{{Op: codec.OpList, Disconnect: true}, {Op: codec.OpQuery, Disconnect: true}} {
		remove := servers[1].Inject(fault)
		_, err = listed(ctx, b)
		require.ErrorContains(t, err, servers[1].Addr())
		remove()
	}
	n = 0
	for _, srv := range servers {
		time.Sleep(5 * time.Second) // until both are connected again
		afterProbe := mockserver.Fault{Op: codec.OpQuery, Skip: 10, Disconnect: true}
		remove := srv.Inject(afterProbe)
		others, err := listed(ctx, b)
		require.Equal(t, 1, strings.Count(err.Error(), "QUERY"), "it is asked for nothing else: %v", err)
		require.ErrorContains(t, err, srv.Addr())
		require.NotEmpty(t, others)
		n += len(others)
		remove()
	}
	require.Equal(t, keys+2, n, "either server's windows come although the other one fails")
}

func TestSubscribeChecksItsArguments(t *testing.T) {
	srv, client := testkit.Start[uint16](t, throttr.Config{})
	ctx := t.Context()
	for text, call := range map[string]func(){
		"throttr: Client.Subscribe: option 1 is nil":       func() { client.Subscribe(ctx, "c", nil) },
		"throttr: Client.Backend: option 1 is nil":         func() { client.Backend(nil) },
		"pubsub: WithQueue: -1 is not 0 to 16777216":       func() { pubsub.WithQueue(-1) },
		"pubsub: WithQueue: 16777217 is not 0 to 16777216": func() { pubsub.WithQueue(1<<24 + 1) },
		"pubsub: WithOverflow: there is no overflow 2":     func() { pubsub.WithOverflow(2) },
	} {
		require.PanicsWithValue(t, text, call)
	}
	_, err := client.Subscribe(ctx, string(make([]byte, 256)))
	require.ErrorIs(t, err, codec.ErrTooLarge)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Subscribe(canceled, "c")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, testkit.SafeToRetry(err))
	require.Equal(t, 1, srv.Conns(), "that of requests")
	srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}, Times: 1})
	_, err = client.Subscribe(ctx, "c")
	require.ErrorIs(t, err, pubsub.ErrRefused)
	var failed *throttr.RequestError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []any{codec.OpSubscribe, srv.Addr(), true}, []any{failed.Op, failed.Server, failed.Sent})
	require.Zero(t, client.Stats().Subscriptions)

	sub := testkit.Subscribe(t, client, "", pubsub.WithQueue(1<<24), pubsub.WithOverflow(pubsub.DropNewest))
	ok, err := client.Publish(ctx, "", []byte("x"))
	require.NoError(t, err)
	require.True(t, ok, "a name may be empty")
	require.Equal(t, "x", string(testkit.Next(t, sub).Payload))
}

// publishers returns a function that publishes the address of a server there.
func publishers(t *testing.T, servers testkit.Servers) func(srv *mockserver.Server, channel string) {
	clients := map[*mockserver.Server]*throttr.Client[uint16]{}
	for _, srv := range servers {
		clients[srv] = testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
	}
	return func(srv *mockserver.Server, channel string) {
		_, err := clients[srv].Publish(t.Context(), channel, []byte(srv.Addr())) // failure if nobody is subscribed
		require.NoError(t, err)
	}
}

func TestAllChannelCoversEveryServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := testkit.Several(t, 3)
		client, publish := testkit.Client[uint16](t, servers.Over(throttr.Config{})), publishers(t, servers)
		all := testkit.Subscribe(t, client, pubsub.All)
		for _, srv := range servers {
			require.Equal(t, 3, srv.Conns(), "of the pool, the subscriptions and the publisher")
			publish(srv, "*")
			require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: "*", Payload: []byte(srv.Addr())}, testkit.Next(t, all))
			require.Zero(t, srv.Requests(codec.OpSubscribe))
		}
		servers[1].Disconnect()
		require.Equal(t, pubsub.Message{Server: servers[1].Addr(), Channel: "*", Gap: true}, testkit.Next(t, all))
		requireNoMessage(t, all)

		all.Close()
		servers[2].Refuse(true)
		servers[2].Disconnect()
		synctest.Wait()
		_, err := client.Subscribe(t.Context(), pubsub.All)
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed, "all servers must confirm")
		require.Equal(t, servers[2].Addr(), failed.Server)
	})
}

func TestChannelLivesWhereAKeyOfItsNameDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := testkit.Several(t, 3)
		client, publish := testkit.Client[uint16](t, servers.Over(throttr.Config{})), publishers(t, servers)
		used := map[string]bool{}
		for i := range 20 {
			channel := fmt.Sprint(i)
			sub := testkit.Subscribe(t, client, channel)
			for _, srv := range servers {
				publish(srv, channel)
			}
			m := testkit.Next(t, sub)
			require.Equal(t, m.Server, string(m.Payload))
			requireNoMessage(t, sub)
			used[m.Server] = true
			_, err := client.Insert(t.Context(), channel, 1, testkit.Minute)
			require.NoError(t, err)
			_, ok := servers.At(m.Server).Counter(channel)
			require.True(t, ok)
		}
		require.Len(t, used, 3)
	})
}

// requireNoMessage fails a test in a bubble if a message comes.
func requireNoMessage(t *testing.T, sub *pubsub.Subscription) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := sub.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
