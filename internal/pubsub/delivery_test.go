package pubsub_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/pubsub"
	"github.com/throttr-go/throttr/mockserver"
)

func TestMessagesAreDelivered(t *testing.T) {
	for _, split := range []int{0, 1, 5} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(t, mockserver.WithSplit(split))
			c := newClient(t, nil, srv)
			publish := newPublisher(t, srv)
			publish("news", "before the subscription")
			s := c.mustSubscribe(t, "news")
			publish("news", "one")
			publish("olds", "another channel")
			publish("news", "")
			publish("news", "\x19\x01\x00")
			for _, want := range []string{"one", "", "\x19\x01\x00"} {
				require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: "news", Payload: []byte(want)}, next(t, s))
			}
			require.Empty(t, queued(t, s))
			require.Zero(t, s.Dropped())
		})
	}
}
