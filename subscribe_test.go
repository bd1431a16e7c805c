package throttr_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

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
