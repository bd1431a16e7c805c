package pubsub_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/pubsub"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// client is what the subscriptions of a client share, over a server in memory.
type client struct {
	manager  *pubsub.Manager
	totals   pubsub.Totals
	dials    atomic.Int64
	id       codec.ConnID // of the last connection
	failures atomic.Int64
	counters conn.Counters
}

// newClient returns a client of a server, which is closed when the test ends. Configure, if
// not nil, changes the options of its manager.
func newClient(t testing.TB, configure func(*pubsub.Options), srv *mockserver.Server) *client {
	t.Helper()
	c := &client{}
	calls := conn.NewCalls(conn.SizeOf(2))
	dialer := &dial.Dialer{
		Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
		Timeout: 5 * time.Second,
	}
	o := pubsub.Options{
		Server: srv.Addr(),
		Open: func(ctx context.Context, onEvent func(conn.Event)) (*conn.Conn, error) {
			c.dials.Add(1)
			nc, err := dial.Connect(ctx, &dial.Target{
				Server: srv.Addr(), Calls: calls, Dialer: dialer, Events: &c.counters.Events, Go: func(f func()) { go f() },
			}, true)
			if err != nil {
				c.failures.Add(1)
				return nil, err
			}
			c.id = nc.ID
			return conn.New(nc.Conn, nc.Early, conn.Options{
				MaxInFlight: 512, MaxQueued: 1 << 16, StallTimeout: 5 * time.Second,
				Calls: calls, Counters: &c.counters, OnEvent: onEvent, ID: nc.ID,
				OnEnd: func(_ *conn.Conn, err error) {
					if !errors.Is(err, window.ErrClosed) {
						c.failures.Add(1)
					}
				},
			}), nil
		},

		MaxInFlight: 512, MaxRetries: 2, HealthInterval: 30 * time.Second,
		MinBackoff: 50 * time.Millisecond, MaxBackoff: 2 * time.Second,
	}
	if configure != nil {
		configure(&o)
	}
	c.manager = pubsub.NewManager(o)
	t.Cleanup(c.close)
	return c
}

// bubble runs a test in a bubble, with a server in memory and a client of it.
func bubble(t *testing.T, configure func(*pubsub.Options), test func(t *testing.T, srv *mockserver.Server, c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		test(t, srv, newClient(t, configure, srv))
	})
}

func (c *client) close() { c.manager.Close() }

func (c *client) subscribe(ctx context.Context, channel string, q pubsub.SubscribeOptions) (s *pubsub.Subscription, server string, sent bool, err error) {
	s, failed := pubsub.Subscribe(ctx, []*pubsub.Manager{c.manager}, channel, q, &c.totals)
	if failed != nil {
		return nil, failed.Server, failed.Sent, failed.Err
	}
	return s, "", false, nil
}

// mustSubscribe subscribes until the test ends, with the first of the options, if there are any.
func (c *client) mustSubscribe(t testing.TB, channel string, o ...pubsub.SubscribeOptions) *pubsub.Subscription {
	t.Helper()
	s, _, _, err := c.subscribe(t.Context(), channel, append(o, pubsub.SubscribeOptions{})[0])
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// newPublisher returns a function that publishes on a connection of its own. The function
// returns when the server has responded.
func newPublisher(t testing.TB, srv *mockserver.Server) func(channel, payload string) {
	t.Helper()
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	encoder, decoder := codec.NewEncoder[uint16](nc), codec.NewDecoder[uint16](nc)
	return func(channel, payload string) {
		require.NoError(t, encoder.Encode(codec.Publish[uint16]{Channel: []byte(channel), Payload: []byte(payload)}))
		_, err := decoder.Response(codec.KindStatus) // failure if nobody is subscribed
		require.NoError(t, err)
	}
}

// next returns the next message or gap. It must come within a minute.
func next(t testing.TB, s *pubsub.Subscription) pubsub.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := s.Next(ctx)
	require.NoError(t, err)
	return m
}

// queued returns the payloads of all messages in the queue, which must hold no gap.
func queued(t testing.TB, s *pubsub.Subscription) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	var all []string
	for {
		m, err := s.Next(ctx)
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return all
		}
		require.False(t, m.Gap)
		all = append(all, string(m.Payload))
	}
}

// delivers requires that a message reaches each of some subscriptions once.
func delivers(t testing.TB, srv *mockserver.Server, channel string, subs ...*pubsub.Subscription) {
	t.Helper()
	newPublisher(t, srv)(channel, "x")
	for _, s := range subs {
		require.Equal(t, []string{"x"}, queued(t, s))
	}
}
