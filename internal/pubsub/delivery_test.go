package pubsub_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/pubsub"
	"github.com/throttr-go/throttr/mockserver"
)

func TestSubscribersToOneChannelShareASubscribeRequest(t *testing.T) {
	bubble(t, nil, func(t *testing.T, srv *mockserver.Server, c *client) {
		other := c.mustSubscribe(t, "other")
		var subs []*pubsub.Subscription
		for range 10 {
			subs = append(subs, c.mustSubscribe(t, "c"))
		}
		require.Equal(t, 2, srv.Requests(codec.OpSubscribe))
		publish := newPublisher(t, srv)
		publish("c", "x")
		synctest.Wait()
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := subs[0].Next(canceled)
		require.ErrorIs(t, err, context.Canceled, "though there is a message")
		next(t, subs[0]).Payload[0] = 'y'
		for _, s := range subs[1:] {
			require.Equal(t, []string{"x"}, queued(t, s), "each has a copy")
			s.Close()
		}
		synctest.Wait()
		require.Zero(t, srv.Requests(codec.OpUnsubscribe))
		publish("c", "z")
		require.Equal(t, []string{"z"}, queued(t, subs[0]))
		srv.Inject(mockserver.Fault{Op: codec.OpUnsubscribe, Delay: time.Second, Times: 1})
		subs[0].Close()
		synctest.Wait()
		require.Equal(t, 1, srv.Requests(codec.OpUnsubscribe))
		require.Zero(t, srv.Subscriptions("c"))
		again := c.mustSubscribe(t, "c") // while the channel is being unsubscribed
		require.Equal(t, 3, srv.Requests(codec.OpSubscribe))
		require.Equal(t, 1, srv.Subscriptions("c"))
		delivers(t, srv, "c", again)
		require.Empty(t, queued(t, other))
	})
}

// The server has subscribed the connection to these channels, and a SUBSCRIBE would make each message come twice.
func TestNoSubscribeForImplicitChannels(t *testing.T) {
	bubble(t, nil, func(t *testing.T, srv *mockserver.Server, c *client) {
		all := c.mustSubscribe(t, pubsub.All)
		id := c.id.String()
		byID := c.mustSubscribe(t, id)
		require.Zero(t, srv.Requests(codec.OpSubscribe))

		publish := newPublisher(t, srv)
		publish("*", "to all")
		publish(id, "to one")
		for channel, s := range map[string]*pubsub.Subscription{"*": all, id: byID} {
			require.Equal(t, channel, next(t, s).Channel)
			require.Empty(t, queued(t, s))
			s.Close()
		}
		synctest.Wait()
		require.Equal(t, 2, srv.Requests(codec.OpUnsubscribe), "at the end of the connection")
		require.Equal(t, 1, srv.Conns(), "the publisher's")
	})
}

func TestSlowSubscriberDoesNotAffectOthers(t *testing.T) {
	const subscribers, channels, messages = 1000, 4, 100
	bubble(t, nil, func(t *testing.T, srv *mockserver.Server, c *client) {
		publish := newPublisher(t, srv)
		slowOld := c.mustSubscribe(t, "0", pubsub.SubscribeOptions{Queue: 10})
		slowNew := c.mustSubscribe(t, "0", pubsub.SubscribeOptions{Queue: 7, DropNewest: true})
		var all sync.WaitGroup
		shared, got := c.mustSubscribe(t, "0", pubsub.SubscribeOptions{Queue: messages}), make(chan string, 2*messages)
		for range 8 { // readers of one subscription
			all.Go(func() {
				for m, err := shared.Next(t.Context()); err == nil; m, err = shared.Next(t.Context()) {
					got <- string(m.Payload)
				}
			})
		}
		for i := range subscribers - 3 {
			s := c.mustSubscribe(t, fmt.Sprint(i%channels), pubsub.SubscribeOptions{Queue: 64})
			all.Go(func() {
				for n := range messages {
					m, err := s.Next(t.Context())
					if err != nil || string(m.Payload) != fmt.Sprint(n) {
						t.Errorf("%d: message %d is %q, %v", i, n, m.Payload, err)
						return
					}
				}
				if s.Dropped() != 0 {
					t.Errorf("%d: %d dropped", i, s.Dropped())
				}
			})
		}
		require.Equal(t, channels, srv.Requests(codec.OpSubscribe))
		require.EqualValues(t, subscribers, c.totals.Open.Load())
		for n := range messages {
			for ch := range channels {
				publish(fmt.Sprint(ch), fmt.Sprint(n))
			}
			if n%50 == 49 {
				synctest.Wait() // the other queues hold 64 messages
			}
		}
		synctest.Wait()
		shared.Close()
		all.Wait()
		seen := map[string]bool{}
		for range len(got) {
			m := <-got
			require.False(t, seen[m], "each message goes to one reader")
			seen[m] = true
		}
		require.Len(t, seen, messages)
		require.EqualValues(t, messages-10, slowOld.Dropped())
		require.EqualValues(t, messages-7, slowNew.Dropped())
		require.EqualValues(t, 2*messages-17, c.totals.Dropped.Load())
	})
}
