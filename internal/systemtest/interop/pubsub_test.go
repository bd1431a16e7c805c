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

	first, second := s.subscribe(t, channel), s.subscribe(t, channel)
	for _, payload := range []string{"hello", "", "\x00\x01\x19"} {
		succeeds(t)(s.client.Publish(s.ctx, channel, []byte(payload)))
		for _, sub := range []*pubsub.Subscription{first, second} {
			m, err := sub.Next(s.ctx)
			require.NoError(t, err)
			require.Equal(t, []string{s.addr, channel, payload}, []string{m.Server, m.Channel, string(m.Payload)})
			require.False(t, m.Gap)
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
	m, err := second.Next(s.ctx)
	require.NoError(t, err)
	require.Equal(t, "last", string(m.Payload), "no message is received twice")
	second.Close()
	require.Eventually(t, func() bool {
		_, ok, err := s.client.Channel(s.ctx, channel)
		return !ok && err == nil
	}, 10*time.Second, time.Millisecond, "UNSUBSCRIBE")
}

// subscribe returns a subscription that is closed at the end of the test.
func (s *suite[T]) subscribe(t *testing.T, channel string) *pubsub.Subscription {
	t.Helper()
	sub, err := s.client.Subscribe(s.ctx, channel)
	require.NoError(t, err)
	t.Cleanup(func() { sub.Close() })
	return sub
}
