package pubsub_test

import (
	"context"
	"fmt"
	"net"
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

// newServers starts three servers and returns a client of them, and a function for each that
// publishes on it.
func newServers(t *testing.T) (
	servers map[string]*mockserver.Server, client *throttr.Client[uint16], publish map[string]func(channel, payload string),
) {
	t.Helper()
	servers, publish = map[string]*mockserver.Server{}, map[string]func(channel, payload string){}
	var cfg throttr.Config
	for i := range 3 {
		addr := fmt.Sprintf("memory:%d", i+1)
		servers[addr] = mockserver.RunT(t, mockserver.WithAddr("memory", addr))
		publisher := testkit.Connect[uint16](t, servers[addr], testkit.Over(servers[addr], throttr.Config{}))
		publish[addr] = func(channel, payload string) {
			_, err := publisher.Publish(t.Context(), channel, []byte(payload)) // failure if nobody is subscribed
			require.NoError(t, err)
		}
		cfg.Servers = append(cfg.Servers, addr)
	}
	cfg.Dial = func(ctx context.Context, _, addr string) (net.Conn, error) { return servers[addr].Dial(ctx) }
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return servers, client, publish
}

func TestAllChannelCoversEveryServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, client, publish := newServers(t)
		all := testkit.Subscribe(t, client, pubsub.All)
		for addr, srv := range servers {
			require.Equal(t, 3, srv.Conns(), "of the pool, the subscriptions and the publisher")
			publish[addr]("*", addr)
			require.Equal(t, pubsub.Message{Server: addr, Channel: "*", Payload: []byte(addr)}, testkit.Next(t, all))
			require.Zero(t, srv.Requests(codec.OpSubscribe))
		}

		servers["memory:2"].Disconnect()
		require.Equal(t, pubsub.Message{Server: "memory:2", Channel: "*", Gap: true}, testkit.Next(t, all))
		require.Empty(t, payloads(t, all))

		all.Close()
		servers["memory:3"].Refuse(true)
		servers["memory:3"].Disconnect()
		synctest.Wait()
		_, err := client.Subscribe(t.Context(), pubsub.All)
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed, "all servers must confirm")
		require.Equal(t, "memory:3", failed.Server)
	})
}

func TestChannelLivesWhereAKeyOfItsNameDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, client, publish := newServers(t)
		used := make(map[string]bool)
		for i := range 20 {
			channel := fmt.Sprint(i)
			sub := testkit.Subscribe(t, client, channel)
			for addr := range servers {
				publish[addr](channel, addr)
			}
			m := testkit.Next(t, sub)
			require.Equal(t, m.Server, string(m.Payload))
			require.Empty(t, payloads(t, sub), "the channel is on one server")
			used[m.Server] = true
			_, err := client.Insert(t.Context(), channel, 1, testkit.Minute)
			require.NoError(t, err)
			_, ok := servers[m.Server].Counter(channel)
			require.True(t, ok)
		}
		require.Len(t, used, 3)
	})
}

// payloads returns the payloads of all messages that sub holds. None of them may be a gap. It
// lets a nanosecond pass, so in a bubble of testing/synctest all messages have arrived.
func payloads(t *testing.T, sub *pubsub.Subscription) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	var all []string
	for m, err := range sub.Messages(ctx) {
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		require.False(t, m.Gap)
		all = append(all, string(m.Payload))
	}
	return all
}
