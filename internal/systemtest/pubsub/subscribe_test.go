package pubsub_test

import (
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

func TestSubscriptionsUseAConnectionOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		require.Equal(t, 1, srv.Conns())
		a, b := testkit.Subscribe(t, client, "a"), testkit.Subscribe(t, client, "b")
		require.Equal(t, 2, srv.Conns())
		require.Equal(t, 2, testkit.ServerStats(client).Conns)
		require.Equal(t, 2, client.Stats().Subscriptions)
		require.NoError(t, a.Close())
		require.NoError(t, a.Close())
		synctest.Wait()
		require.Equal(t, 2, srv.Conns())
		require.Equal(t, 1, client.Stats().Subscriptions)
		require.NoError(t, b.Close())
		synctest.Wait()
		require.Equal(t, 1, srv.Conns())
		require.Equal(t, 1, testkit.ServerStats(client).Conns)
		require.Zero(t, client.Stats().Subscriptions)

		again := testkit.Subscribe(t, client, "a")
		newPublisher(t, srv)("a", "again")
		require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: "a", Payload: []byte("again")}, testkit.Next(t, again))
		require.Zero(t, testkit.ServerStats(client).Failures)
		require.EqualValues(t, 3, testkit.ServerStats(client).Dials)
	})
}

func TestSubscribeToAnUnreachableServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Refuse(true)
		for range 2 {
			_, err := client.Subscribe(t.Context(), "c")
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.True(t, testkit.SafeToRetry(err))
			var failed *throttr.RequestError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, codec.OpSubscribe, failed.Op)
			require.Equal(t, srv.Addr(), failed.Server)
			synctest.Wait()
		}
		require.Zero(t, client.Stats().Subscriptions)
		srv.Refuse(false)
		sub := testkit.Subscribe(t, client, "c")
		newPublisher(t, srv)("c", "x")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, sub))
	})
}

func TestSubscribeErrorSaysWhetherTheRequestWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}, Times: 1})
		_, err := client.Subscribe(t.Context(), "c")
		require.ErrorIs(t, err, throttr.ErrRefused)
		require.False(t, testkit.SafeToRetry(err))

		require.NoError(t, client.Close())
		_, err = client.Subscribe(t.Context(), "c")
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.True(t, testkit.SafeToRetry(err))
	})
}

func TestFullQueueDropsAsTheOptionSays(t *testing.T) {
	for policy, want := range map[pubsub.Overflow][]string{
		pubsub.DropOldest: {"3", "4"},
		pubsub.DropNewest: {"0", "1"},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
				sub := testkit.Subscribe(t, client, "c", pubsub.WithQueue(2), pubsub.WithOverflow(policy))
				other := testkit.Subscribe(t, client, "c")
				publish := newPublisher(t, srv)
				for i := range 5 {
					publish("c", fmt.Sprint(i))
				}
				synctest.Wait() // all messages are in the queues
				require.Equal(t, want, testkit.Payloads(t, sub))
				require.Len(t, testkit.Payloads(t, other), 5)
				require.EqualValues(t, 3, sub.Dropped())
				require.Zero(t, other.Dropped())
				require.EqualValues(t, 3, client.Stats().Dropped)
			})
		})
	}
}

func TestDefaultQueueHolds256Messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		sub := testkit.Subscribe(t, client, "c")
		publish := newPublisher(t, srv)
		for i := range 300 {
			publish("c", fmt.Sprint(i))
		}
		synctest.Wait() // all messages are in the queue
		got := testkit.Payloads(t, sub)
		require.Len(t, got, 256)
		require.Equal(t, "299", got[255], "the oldest messages are dropped")
		require.EqualValues(t, 300-256, sub.Dropped())
	})
}

func TestLostConnectionLeavesAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			MinBackoff: time.Second, MaxBackoff: 8 * time.Second,
		}))
		sub, own := testkit.Subscribe(t, client, "c"), testkit.Subscribe(t, client, pubsub.Own)
		before, ok := own.ConnID(srv.Addr())
		require.True(t, ok)
		publish := newPublisher(t, srv)
		publish("c", "before")
		synctest.Wait() // a message on its way is lost with the connection
		srv.Refuse(true)
		srv.Disconnect()
		dials := testkit.ServerStats(client).Dials
		time.Sleep(27 * time.Second)
		require.EqualValues(t, 6, testkit.ServerStats(client).Dials-dials, "at once, and after 1, 3, 7, 15 and 23 s")
		_, ok = own.ConnID(srv.Addr())
		require.False(t, ok)
		srv.Refuse(false)
		require.Equal(t, "before", string(testkit.Next(t, sub).Payload))
		require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: "c", Gap: true}, testkit.Next(t, sub))
		after, ok := own.ConnID(srv.Addr())
		require.True(t, ok)
		require.NotEqual(t, before, after)
		require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: after.String(), Gap: true}, testkit.Next(t, own))
		newPublisher(t, srv)("c", "x")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, sub))
	})
}

func TestClientReceivesItsOwnMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		sub, everything := testkit.Subscribe(t, client, "c"), testkit.Subscribe(t, client, pubsub.All)
		for i := range 100 {
			ok, err := client.Publish(t.Context(), "c", []byte(fmt.Sprint(i)))
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, fmt.Sprint(i), string(testkit.Next(t, sub).Payload))
		}
		_, err := client.Publish(t.Context(), "*", []byte("all"))
		require.NoError(t, err)
		require.Equal(t, []string{"all"}, testkit.Payloads(t, everything))
		require.Empty(t, testkit.Payloads(t, sub))
	})
}

// Messages ends with ErrClosed after Close, and the queued messages come first.
func TestClosedSubscriptionYieldsItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		sub := testkit.Subscribe(t, client, "c")
		publish := newPublisher(t, srv)
		publish("c", "1")
		publish("c", "2")
		synctest.Wait()
		require.NoError(t, client.Close())
		got, err := testkit.Collect(t, sub.Messages(t.Context()))
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.Len(t, got, 2)
		require.Equal(t, "1", string(got[0].Payload))
		require.Zero(t, client.Stats().Subscriptions)
		for range sub.Messages(t.Context()) { // it can be left at any time
			break
		}
	})
}
