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
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/pubsub"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

func TestLostConnectionIsReplacedAndLeavesAGap(t *testing.T) {
	bubble(t, nil, func(t *testing.T, srv *mockserver.Server, c *client) {
		var subs []*pubsub.Subscription
		for i := range 200 { // 100 channels, more than one write requests
			subs = append(subs, c.mustSubscribe(t, fmt.Sprint(i/2)))
		}
		all := c.mustSubscribe(t, pubsub.All)
		newPublisher(t, srv)("7", "before")
		synctest.Wait()
		srv.Disconnect()
		synctest.Wait()
		require.False(t, c.manager.Connected())
		require.EqualValues(t, 1, c.failures.Load())
		newPublisher(t, srv)("7", "meanwhile")
		time.Sleep(time.Second)
		require.True(t, c.manager.Connected())
		publish := newPublisher(t, srv)
		publish("7", "after")
		publish("*", "all")

		require.Equal(t, "before", string(next(t, subs[14]).Payload))
		require.Equal(t, "before", string(next(t, subs[15]).Payload))
		for i, s := range subs {
			require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: fmt.Sprint(i / 2), Gap: true}, next(t, s))
		}
		require.Equal(t, pubsub.Message{Server: srv.Addr(), Channel: "*", Gap: true}, next(t, all))
		require.Equal(t, []string{"after"}, queued(t, subs[14]))
		require.Equal(t, []string{"after"}, queued(t, subs[15]))
		require.Equal(t, []string{"all"}, queued(t, all))
		require.Equal(t, 200, srv.Requests(codec.OpSubscribe))
	})
}

// TestGapPrecedesMessagesBeforeTheConfirmation: EVENTs can arrive while the response to the
// SUBSCRIBE is still on its way.
func TestGapPrecedesMessagesBeforeTheConfirmation(t *testing.T) {
	bubble(t, nil, func(t *testing.T, srv *mockserver.Server, c *client) {
		s, all := c.mustSubscribe(t, "c"), c.mustSubscribe(t, pubsub.All)
		remove := srv.Inject(mockserver.Fault{Delay: time.Second})
		srv.Disconnect()
		synctest.Wait()
		go func() {
			for range 40 {
				srv.Publish("c", []byte("x"))
				srv.Publish("*", []byte("y"))
				time.Sleep(100 * time.Millisecond)
			}
			remove()
		}()
		late := c.mustSubscribe(t, "c") // waits for the same confirmation
		time.Sleep(10 * time.Second)
		require.NotEmpty(t, queued(t, late), "a new subscription has no gap")
		for _, s := range []*pubsub.Subscription{s, all} {
			require.True(t, next(t, s).Gap)
			require.NotEmpty(t, queued(t, s), "without another gap")
		}
	})
}

// A subscriber that waits for its confirmation receives what the server sends already. If it misses something then, it
// learns that as others do.
func TestAGapFollowsMessagesBeforeTheConfirmation(t *testing.T) {
	var deliver func(conn.Event)
	configure := func(o *pubsub.Options) {
		open := o.Open
		o.Open = func(ctx context.Context, onEvent func(conn.Event)) (*conn.Conn, error) {
			deliver = onEvent
			return open(ctx, onEvent)
		}
	}
	for name, miss := range map[string]func(t *testing.T, srv *mockserver.Server, c *client){
		"a lost connection": func(t *testing.T, srv *mockserver.Server, c *client) {
			remove := srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Drop: true})
			time.AfterFunc(time.Second, func() {
				srv.Publish("c", []byte("x"))
				synctest.Wait()
				remove()
				srv.Disconnect()
			})
		},
		"an UNSUBSCRIBE": func(t *testing.T, srv *mockserver.Server, c *client) {
			before := c.mustSubscribe(t, "c")
			srv.Inject(mockserver.Fault{Op: codec.OpUnsubscribe, Delay: time.Second, Times: 1})
			before.Close()
			synctest.Wait()
			time.AfterFunc(time.Second/2, func() { // it has been on its way
				deliver(conn.Event{Channel: []byte("c"), Payload: []byte("x")})
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, configure, func(t *testing.T, srv *mockserver.Server, c *client) {
				c.mustSubscribe(t, "other")
				miss(t, srv, c)
				s := c.mustSubscribe(t, "c")
				newPublisher(t, srv)("c", "y")
				require.Equal(t, "x", string(next(t, s).Payload))
				require.True(t, next(t, s).Gap)
				require.Equal(t, []string{"y"}, queued(t, s))
				delivers(t, srv, "c", c.mustSubscribe(t, "c"), s)
			})
		})
	}
}

// Messages can come on a connection that is not ready yet, and it may never be.
func TestAConnectionThatWasNotMadeLeavesAGap(t *testing.T) {
	fails := false
	configure := func(o *pubsub.Options) {
		open := o.Open
		o.Open = func(ctx context.Context, onEvent func(conn.Event)) (*conn.Conn, error) {
			if fails {
				fails = false
				onEvent(conn.Event{Channel: []byte(pubsub.All), Payload: []byte("x")})
				return nil, dial.ErrConnect
			}
			return open(ctx, onEvent)
		}
	}
	bubble(t, configure, func(t *testing.T, srv *mockserver.Server, c *client) {
		s := c.mustSubscribe(t, pubsub.All)
		fails = true
		srv.Disconnect()
		require.True(t, next(t, s).Gap)
		require.Equal(t, "x", string(next(t, s).Payload))
		require.True(t, next(t, s).Gap, "what was published since then is lost")
		delivers(t, srv, pubsub.All, s)
	})
}

func TestReconnectBacksOff(t *testing.T) {
	configure := func(o *pubsub.Options) { o.MinBackoff, o.MaxBackoff = time.Second, 4*time.Second }
	bubble(t, configure, func(t *testing.T, srv *mockserver.Server, c *client) {
		s := c.mustSubscribe(t, "c")
		dials := c.dials.Load()
		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(2 * time.Second)
		_, server, sent, err := c.subscribe(t.Context(), "c", pubsub.SubscribeOptions{})
		require.ErrorIs(t, err, window.ErrUnavailable, "the last attempt has failed")
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.Equal(t, srv.Addr(), server)
		require.False(t, sent)
		time.Sleep(time.Minute)
		require.InDelta(t, 17, c.dials.Load()-dials, 2)
		require.Equal(t, c.dials.Load()-dials, c.failures.Load()-1)
		srv.Refuse(false)
		time.Sleep(5 * time.Second)
		require.True(t, next(t, s).Gap)
		require.Empty(t, queued(t, s), "one gap is enough")
		delivers(t, srv, "c", s)
		c.mustSubscribe(t, "other").Close()

		srv.Disconnect()
		start := time.Now()
		require.True(t, next(t, s).Gap)
		require.InDelta(t, 1, time.Since(start).Seconds(), 0.2, "the backoff has started over")

		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(time.Minute)
		s.Close()
		synctest.Wait()
		dials = c.dials.Load()
		time.Sleep(time.Minute)
		require.Equal(t, dials, c.dials.Load(), "no subscription needs a connection")
	})
}

// EVENTs need room among the 1024 responses that a server keeps (H4).
func TestFewRequestsAreOutstanding(t *testing.T) {
	for allowed, most := range map[int]int{512: 64, 3: 3} {
		configure := func(o *pubsub.Options) { o.MaxInFlight = allowed }
		bubble(t, configure, func(t *testing.T, srv *mockserver.Server, c *client) {
			srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Delay: time.Second})
			var all sync.WaitGroup
			for i := range 3 * most {
				all.Go(func() { c.mustSubscribe(t, fmt.Sprint(i)) })
			}
			largest, before := 0, 0
			for range 10 {
				synctest.Wait()
				now := srv.Requests(codec.OpSubscribe)
				largest, before = max(largest, now-before), now
				time.Sleep(time.Second)
			}
			all.Wait()
			require.Equal(t, 3*most, before)
			require.Equal(t, most, largest)
		})
	}
}

func TestAConnectionWithAFaultIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		fault mockserver.Fault
		begin func(t *testing.T, srv *mockserver.Server, c *client)
		after time.Duration
	}{
		"a response is dropped (H4)": {mockserver.Fault{Op: codec.OpSubscribe, Drop: true, Times: 1},
			func(t *testing.T, _ *mockserver.Server, c *client) {
				c.mustSubscribe(t, "c") // succeeds on the next connection
				require.EqualValues(t, 1, c.failures.Load())
			}, 6 * time.Second},
		"the server is silent": {mockserver.Fault{Op: codec.OpQuery, Drop: true, Times: 1},
			func(*testing.T, *mockserver.Server, *client) {}, 36 * time.Second},
		"a confirmed subscription is refused": {mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}, Times: 3},
			func(_ *testing.T, srv *mockserver.Server, _ *client) { srv.Disconnect() }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, srv *mockserver.Server, c *client) {
				s := c.mustSubscribe(t, "old")
				srv.Inject(test.fault)
				begun := time.Now()
				test.begin(t, srv, c)
				require.True(t, next(t, s).Gap)
				require.InDelta(t, test.after, time.Since(begun), float64(2*time.Second))
				delivers(t, srv, "old", s)
			})
		})
	}
}

func TestCloseEndsSubscriptions(t *testing.T) {
	for name, end := range map[string]func(*client, *pubsub.Subscription){
		"subscription": func(_ *client, s *pubsub.Subscription) { s.Close() },
		"manager":      func(c *client, _ *pubsub.Subscription) { c.close() },
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			c := newClient(t, nil, srv)
			s, idle := c.mustSubscribe(t, "c"), c.mustSubscribe(t, "idle")
			publish := newPublisher(t, srv)
			publish("c", "1")
			publish("c", "2")
			synctest.Wait()
			result := make(chan error)
			for _, ctx := range []context.Context{&endsOnceWoken{Context: t.Context()}, t.Context()} {
				go func() {
					_, err := idle.Next(ctx)
					result <- err
				}()
				synctest.Wait()
			}
			end(c, s)
			idle.Close()
			require.ErrorIs(t, <-result, context.Canceled)
			require.ErrorIs(t, <-result, window.ErrClosed, "another caller is woken")
			publish("c", "3")
			for _, queued := range []string{"1", "2"} {
				require.Equal(t, queued, string(next(t, s).Payload), "queued messages can still be read")
			}
			_, err := s.Next(t.Context())
			require.ErrorIs(t, err, window.ErrClosed)
			require.Zero(t, s.Dropped())
			s.Close()
			c.close()
			require.Zero(t, c.totals.Open.Load())
			require.Zero(t, c.failures.Load())
		})
	}
}

// endsOnceWoken is a context that ends when it is asked for the second time.
type endsOnceWoken struct {
	context.Context
	asked int
}

func (c *endsOnceWoken) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

func TestCloseEndsSubscriptionsAtAnyTime(t *testing.T) {
	configure := func(o *pubsub.Options) { o.MinBackoff = time.Millisecond }
	bubble(t, configure, func(t *testing.T, srv *mockserver.Server, c *client) {
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for {
					s, _, _, err := c.subscribe(t.Context(), []string{"a", "b", pubsub.All}[i%3], pubsub.SubscribeOptions{})
					if err != nil {
						c.close() // the first failure closes the client
						if _, _, _, err := c.subscribe(t.Context(), "a", pubsub.SubscribeOptions{}); err == nil {
							t.Error("Subscribe succeeds after Close")
						}
						return
					}
					all.Go(s.Close)
					if _, err := s.Next(t.Context()); err != nil && i == 0 {
						c.close()
					}
				}
			})
		}
		for range 20 {
			time.Sleep(100 * time.Microsecond)
			srv.Publish("a", []byte("x"))
			srv.Disconnect()
		}
		c.close()
		all.Wait()
		require.Zero(t, c.totals.Open.Load())
		synctest.Wait()
		require.Zero(t, srv.Conns())
	})
}

// Subscribe fails, nothing of it is left, and the next one succeeds.
func TestSubscribeFails(t *testing.T) {
	closed := func(c *client) { time.AfterFunc(time.Second, c.close) }
	for name, test := range map[string]struct {
		refuse  bool
		fault   mockserver.Fault
		begin   func(c *client)
		timeout time.Duration // of its context
		want    error
		sent    bool
		after   time.Duration
	}{
		"no server":             {refuse: true, timeout: time.Minute, want: dial.ErrConnect},
		"no WHOAMI":             {fault: mockserver.Fault{Op: codec.OpWhoAmI, Drop: true}, timeout: time.Minute, want: dial.ErrConnect, after: 5 * time.Second},
		"the server refuses":    {fault: mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}}, timeout: time.Minute, want: pubsub.ErrRefused, sent: true},
		"MaxRetries losses":     {fault: mockserver.Fault{Op: codec.OpSubscribe, Disconnect: true}, timeout: time.Minute, want: conn.ErrLost, sent: true, after: 150 * time.Millisecond},
		"its context has ended": {timeout: -1, want: context.DeadlineExceeded},
		"its context ends":      {fault: slow(codec.OpSubscribe), timeout: time.Second, want: context.DeadlineExceeded, sent: true, after: time.Second},
		"closed, probing":       {fault: slow(codec.OpInsert), begin: closed, timeout: time.Minute, want: window.ErrClosed, after: time.Second},
		"closed, subscribing":   {fault: slow(codec.OpSubscribe), begin: closed, timeout: time.Minute, want: window.ErrClosed, sent: true, after: time.Second},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			c := newClient(t, nil, srv)
			srv.Refuse(test.refuse)
			remove := func() {}
			if test.fault.Op != 0 {
				remove = srv.Inject(test.fault)
			}
			if test.begin != nil {
				test.begin(c)
			}
			ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
			defer cancel()
			start := time.Now()
			_, server, sent, err := c.subscribe(ctx, "c", pubsub.SubscribeOptions{})
			require.ErrorIs(t, err, test.want)
			require.NotContains(t, err.Error(), window.ErrUnavailable.Error(), "it was tried")
			require.Equal(t, srv.Addr(), server)
			require.Equal(t, test.sent, sent)
			require.InDelta(t, test.after, time.Since(start), float64(20*time.Millisecond))
			require.Zero(t, c.totals.Open.Load())
			remove()
			srv.Refuse(false)
			time.Sleep(2 * time.Minute)
			require.Zero(t, srv.Conns())
			if test.want == window.ErrClosed {
				_, _, sent, err = c.subscribe(t.Context(), "c", pubsub.SubscribeOptions{})
				require.ErrorIs(t, err, window.ErrClosed)
				require.False(t, sent)
				return
			}
			delivers(t, srv, "c", c.mustSubscribe(t, "c"))
		})
	}
}

// slow is a fault that delays the responses to requests of a kind.
func slow(op codec.Op) mockserver.Fault { return mockserver.Fault{Op: op, Delay: time.Minute} }

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
