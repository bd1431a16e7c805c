package interop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/pubsub"
)

func testSubscriptions[T codec.Value](t *testing.T, s *suite[T]) {
	channel := s.run + "news"
	fails(t)(found(s.client.Channel(s.ctx, channel)))
	fails(t)(s.client.Publish(s.ctx, channel, []byte("no subscriber")))

	first, second := testkit.Subscribe(t, s.client, channel), testkit.Subscribe(t, s.client, channel)
	for _, payload := range []string{"hello", "", "\x00\x01\x19"} {
		succeeds(t)(s.client.Publish(s.ctx, channel, []byte(payload)))
		for _, sub := range []*pubsub.Subscription{first, second} {
			require.Equal(t, pubsub.Message{Server: s.addr, Channel: channel, Payload: []byte(payload)}, testkit.Next(t, sub))
		}
	}

	subscribers, ok, err := s.client.Channel(s.ctx, channel)
	succeeds(t)(ok, err)
	require.Len(t, subscribers, 1, "subscriptions of a client share one on the server")
	all, err := testkit.Collect(t, s.client.Channels(s.ctx))
	require.NoError(t, err)
	channels := map[string]uint64{}
	for _, c := range all {
		channels[c.Name] = c.Connections
	}
	require.Equal(t, uint64(1), channels[channel])
	require.Equal(t, uint64(1), channels[subscribers[0].ID.String()])
	require.NotZero(t, channels[pubsub.All])

	first.Close()
	succeeds(t)(s.client.Publish(s.ctx, channel, []byte("last")))
	require.Equal(t, "last", string(testkit.Next(t, second).Payload), "no message is received twice")
	second.Close()
	require.Eventually(t, func() bool {
		_, ok, err := s.client.Channel(s.ctx, channel)
		return !ok && err == nil
	}, 10*time.Second, time.Millisecond, "UNSUBSCRIBE")
}
