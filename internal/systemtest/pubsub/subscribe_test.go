package pubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// publisher returns a function that publishes on a connection of its own, and returns
// when the server has answered.
func publisher(t testing.TB, srv *mockserver.Server) func(channel, payload string) {
	t.Helper()
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	buf := make([]byte, 0, 1<<16)
	return func(channel, payload string) {
		frame, err := codec.Publish[uint16]{Channel: []byte(channel), Payload: []byte(payload)}.AppendBinary(nil)
		require.NoError(t, err)
		_, err = nc.Write(frame)
		require.NoError(t, err)
		for {
			for len(buf) > 0 {
				if codec.Op(buf[0]) != codec.OpEvent {
					require.LessOrEqual(t, buf[0], byte(1)) // 0 where nobody is subscribed
					buf = buf[1:]
					return
				}
				_, n, err := codec.DecodeEvent[uint16](buf)
				if err != nil {
					require.ErrorIs(t, err, codec.ErrShort)
					break
				}
				buf = buf[n:]
			}
			n, err := nc.Read(buf[len(buf):cap(buf)])
			require.NoError(t, err)
			buf = append(make([]byte, 0, 1<<16), buf[:len(buf)+n]...)
		}
	}
}

// next returns the next message, which must be there.
func next(t testing.TB, sub *throttr.Subscription) throttr.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := sub.Next(ctx)
	require.NoError(t, err)
	return m
}

// payloads returns those of all messages that are there.
func payloads(t testing.TB, sub *throttr.Subscription) []string {
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

func TestASubscriptionDelivers(t *testing.T) {
	for _, split := range []int{0, 1, 5} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithSplit(split))
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
			publish := publisher(t, srv)
			publish("news", "nobody listens")
			sub := testkit.Subscribe(t, client, "news")
			publish("news", "one")
			publish("olds", "not ours")
			publish("news", "")
			publish("news", "\x19\x01\x00")
			for _, want := range []string{"one", "", "\x19\x01\x00"} {
				m := testkit.Next(t, sub)
				require.Equal(t, throttr.Message{Server: srv.Addr(), Channel: "news", Payload: []byte(want)}, m)
			}
			require.Empty(t, testkit.Payloads(t, sub))
			require.Zero(t, sub.Dropped())
		})
	}
}

func TestSubscriptionsHaveAConnectionOfTheirOwnWhileThereAreAny(t *testing.T) {
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
		require.Zero(t, client.Stats().Subscriptions)

		c := testkit.Subscribe(t, client, "a")
		publisher(t, srv)("a", "again")
		require.Equal(t, "again", string(testkit.Next(t, c).Payload))
		require.Zero(t, testkit.ServerStats(client).Failures)
		require.EqualValues(t, 3, testkit.ServerStats(client).Dials)
	})
}

func TestSubscriptionsToAChannelShareOneOnTheWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		other := testkit.Subscribe(t, client, "other")
		var subs []*throttr.Subscription
		for range 10 {
			subs = append(subs, testkit.Subscribe(t, client, "c"))
		}
		require.Equal(t, 2, srv.Requests(codec.OpSubscribe))
		publish := publisher(t, srv)
		publish("c", "x")
		first := testkit.Next(t, subs[0])
		first.Payload[0] = 'y'
		for _, s := range subs[1:] {
			require.Equal(t, []string{"x"}, testkit.Payloads(t, s), "each has a copy")
		}
		for _, s := range subs[1:] {
			require.NoError(t, s.Close())
		}
		synctest.Wait()
		require.Zero(t, srv.Requests(codec.OpUnsubscribe))
		publish("c", "z")
		require.Equal(t, "z", string(testkit.Next(t, subs[0]).Payload))
		require.NoError(t, subs[0].Close())
		synctest.Wait()
		require.Equal(t, 1, srv.Requests(codec.OpUnsubscribe))
		require.Zero(t, srv.Subscriptions("c"))
		testkit.Subscribe(t, client, "c")
		require.Equal(t, 3, srv.Requests(codec.OpSubscribe))
		require.Equal(t, 1, srv.Subscriptions("c"))
		require.Empty(t, testkit.Payloads(t, other))
	})
}

func TestManyWhoComeAndGoLeaveTheServerAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		var all sync.WaitGroup
		var left [4]*throttr.Subscription
		for i := range 200 {
			all.Go(func() {
				for round := range 5 {
					sub, err := client.Subscribe(t.Context(), fmt.Sprint(i%4))
					if err != nil {
						t.Error(err)
						return
					}
					if i < 4 && round == 4 {
						left[i] = sub
						return
					}
					sub.Close()
				}
			})
		}
		all.Wait()
		synctest.Wait()
		publish := publisher(t, srv)
		for i, s := range left {
			require.Equal(t, 1, srv.Subscriptions(fmt.Sprint(i)))
			publish(fmt.Sprint(i), "once")
			require.Equal(t, []string{"once"}, testkit.Payloads(t, s))
			s.Close()
		}
		synctest.Wait()
		require.Equal(t, 2, srv.Conns(), "the pool's and the publisher's")
	})
}

func TestASlowSubscriberLosesAloneAndItsLossesAreCounted(t *testing.T) {
	const subscribers, channels, messages = 1000, 4, 400
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		publish := publisher(t, srv)
		slowOld := testkit.Subscribe(t, client, "0", throttr.WithQueue(10))
		slowNew := testkit.Subscribe(t, client, "0", throttr.WithQueue(7), throttr.WithOverflow(throttr.DropNewest))
		var all sync.WaitGroup
		for i := range subscribers - 2 {
			sub := testkit.Subscribe(t, client, fmt.Sprint(i%channels))
			all.Go(func() {
				for n := range messages {
					m, err := sub.Next(t.Context())
					if err != nil || string(m.Payload) != fmt.Sprint(n) {
						t.Errorf("%d: message %d is %q, %v", i, n, m.Payload, err)
						return
					}
				}
				if sub.Dropped() != 0 {
					t.Errorf("%d: %d dropped", i, sub.Dropped())
				}
			})
		}
		require.Equal(t, channels, srv.Requests(codec.OpSubscribe))
		for n := range messages {
			for c := range channels {
				publish(fmt.Sprint(c), fmt.Sprint(n))
			}
			if n%100 == 99 {
				synctest.Wait() // the others have queues of 256
			}
		}
		all.Wait()
		require.EqualValues(t, messages-10, slowOld.Dropped())
		require.EqualValues(t, messages-7, slowNew.Dropped())
		require.EqualValues(t, 2*messages-17, client.Stats().Dropped)
		var last, first []string
		for n := range 10 {
			last = append(last, fmt.Sprint(messages-10+n))
		}
		for n := range 7 {
			first = append(first, fmt.Sprint(n))
		}
		require.Equal(t, last, testkit.Payloads(t, slowOld))
		require.Equal(t, first, testkit.Payloads(t, slowNew))
	})
}

func TestALostConnectionIsMadeAgainAndLeavesAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		var subs []*throttr.Subscription
		for i := range 200 { // more than are sent at once
			subs = append(subs, testkit.Subscribe(t, client, fmt.Sprint(i/2)))
		}
		everything := testkit.Subscribe(t, client, throttr.AllChannel)
		own := testkit.Subscribe(t, client, throttr.OwnChannel)
		before, ok := own.ConnID(srv.Addr())
		require.True(t, ok)
		publisher(t, srv)("7", "before")
		synctest.Wait()
		srv.Disconnect()
		synctest.Wait()
		_, ok = own.ConnID(srv.Addr())
		require.False(t, ok)
		publisher(t, srv)("7", "meanwhile")
		time.Sleep(time.Second)
		after, ok := own.ConnID(srv.Addr())
		require.True(t, ok)
		require.NotEqual(t, before, after)
		late := testkit.Subscribe(t, client, "7")
		publish := publisher(t, srv)
		publish("7", "after")
		publish("*", "all")
		publish(after.String(), "own")

		require.Equal(t, "before", string(testkit.Next(t, subs[14]).Payload))
		require.Equal(t, "before", string(testkit.Next(t, subs[15]).Payload))
		for i, s := range subs {
			require.Equal(t, throttr.Message{Server: srv.Addr(), Channel: fmt.Sprint(i / 2), Gap: true}, testkit.Next(t, s))
		}
		require.Equal(t, throttr.Message{Server: srv.Addr(), Channel: "*", Gap: true}, testkit.Next(t, everything))
		require.Equal(t, throttr.Message{Server: srv.Addr(), Channel: after.String(), Gap: true}, testkit.Next(t, own))
		require.Equal(t, []string{"after"}, testkit.Payloads(t, subs[14]))
		require.Equal(t, []string{"after"}, testkit.Payloads(t, subs[15]))
		require.Equal(t, []string{"after"}, testkit.Payloads(t, late), "who came later has no gap")
		require.Equal(t, []string{"all"}, testkit.Payloads(t, everything))
		require.Equal(t, []string{"own"}, testkit.Payloads(t, own))
		require.Equal(t, 200, srv.Requests(codec.OpSubscribe))
	})
}

func TestAServerThatIsAwayForLongIsTriedAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{RetryPause: time.Second, MaxRetryPause: 4 * time.Second}))
		sub := testkit.Subscribe(t, client, "c")
		dials := testkit.ServerStats(client).Dials
		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(2 * time.Second)
		_, err := client.Subscribe(t.Context(), "c")
		require.ErrorIs(t, err, throttr.ErrUnavailable, "known already")
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.True(t, throttr.SafeToRetry(err))
		time.Sleep(time.Minute)
		require.InDelta(t, 17, testkit.ServerStats(client).Dials-dials, 2)
		srv.Refuse(false)
		time.Sleep(5 * time.Second)
		require.True(t, testkit.Next(t, sub).Gap)
		require.Empty(t, testkit.Payloads(t, sub), "one gap is enough")
		publisher(t, srv)("c", "back")
		require.Equal(t, "back", string(testkit.Next(t, sub).Payload))

		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(time.Minute)
		sub.Close()
		synctest.Wait()
		dials = testkit.ServerStats(client).Dials
		time.Sleep(time.Minute)
		require.Equal(t, dials, testkit.ServerStats(client).Dials, "nobody needs it any more")
	})
}

func TestSubscribeWhereTheServerCannotBeReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Refuse(true)
		for range 2 {
			_, err := client.Subscribe(t.Context(), "c")
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.True(t, throttr.SafeToRetry(err))
			var re *throttr.RequestError
			require.ErrorAs(t, err, &re)
			require.Equal(t, codec.OpSubscribe, re.Op)
			require.Equal(t, srv.Addr(), re.Server)
			synctest.Wait()
		}
		require.Zero(t, client.Stats().Subscriptions)
		srv.Refuse(false)
		sub := testkit.Subscribe(t, client, "c")
		publisher(t, srv)("c", "x")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, sub))
	})
}

func TestSubscribeChecksWhatItIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		ctx := t.Context()
		_, err := client.Subscribe(ctx, "c", throttr.WithQueue(0))
		require.ErrorIs(t, err, throttr.ErrConfig)
		_, err = client.Subscribe(ctx, "c", throttr.WithQueue(1<<24+1))
		require.ErrorIs(t, err, throttr.ErrConfig)
		_, err = client.Subscribe(ctx, "c", throttr.WithOverflow(2))
		require.ErrorIs(t, err, throttr.ErrConfig)
		_, err = client.Subscribe(ctx, string(make([]byte, 256)))
		require.ErrorIs(t, err, codec.ErrTooLarge)
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, err = client.Subscribe(over, "c")
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, throttr.SafeToRetry(err))
		require.Equal(t, 1, srv.Conns())
		empty := testkit.Subscribe(t, client, "")
		publisher(t, srv)("", "x")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, empty))
	})
}

func TestSubscribersLeaveWhenTheirContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		defer srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Delay: time.Second})()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := client.Subscribe(ctx, "c")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, throttr.SafeToRetry(err))
		require.Equal(t, 500*time.Millisecond, time.Since(start))
		time.Sleep(time.Second)
		require.Equal(t, 1, srv.Requests(codec.OpUnsubscribe))
		require.Equal(t, 1, srv.Conns())

		sub := testkit.Subscribe(t, client, "c")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = sub.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		publisher(t, srv)("c", "x")
		_, err = sub.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "though there is a message")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, sub))
	})
}

func TestAClosedSubscriptionGivesWhatItHas(t *testing.T) {
	for name, end := range map[string]func(*throttr.Client[uint16], *throttr.Subscription) error{
		"subscription": func(_ *throttr.Client[uint16], s *throttr.Subscription) error { return s.Close() },
		"client":       func(c *throttr.Client[uint16], _ *throttr.Subscription) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
				sub, idle := testkit.Subscribe(t, client, "c"), testkit.Subscribe(t, client, "idle")
				publish := publisher(t, srv)
				publish("c", "1")
				publish("c", "2")
				synctest.Wait()
				waiting := make(chan error)
				go func() {
					_, err := idle.Next(t.Context())
					waiting <- err
				}()
				synctest.Wait()
				require.NoError(t, end(client, sub))
				idle.Close()
				require.ErrorIs(t, <-waiting, throttr.ErrClosed)
				publish("c", "3")
				var got []string
				for m, err := range sub.Messages(t.Context()) {
					if err != nil {
						require.ErrorIs(t, err, throttr.ErrClosed)
						break
					}
					got = append(got, string(m.Payload))
				}
				require.Equal(t, []string{"1", "2"}, got)
				require.Zero(t, sub.Dropped())
				require.NoError(t, sub.Close())
				client.Close()
				_, err := client.Subscribe(t.Context(), "c")
				require.ErrorIs(t, err, throttr.ErrClosed)
				require.Zero(t, client.Stats().Subscriptions)
			})
		})
	}
}

func TestSubscriptionsMayBeClosedInTheMidstOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{RetryPause: time.Millisecond}))
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for {
					sub, err := client.Subscribe(t.Context(), []string{"a", "b", "*", throttr.OwnChannel}[i%4])
					if err != nil {
						client.Close() // waits for its end
						if _, err := client.Subscribe(t.Context(), "a"); err == nil {
							t.Error("closed")
						}
						return
					}
					all.Go(func() { sub.Close() })
					if _, err := sub.Next(t.Context()); err != nil && i == 0 {
						client.Close()
					}
				}
			})
		}
		for range 20 {
			srv.Publish("a", []byte("x"))
			srv.Disconnect()
		}
		client.Close()
		all.Wait()
		require.Zero(t, client.Stats().Subscriptions)
		synctest.Wait()
		require.Zero(t, srv.Conns())
	})
}

func TestSeveralServersEachHaveTheirChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := make(map[string]*mockserver.Server)
		var cfg throttr.Config
		for i := range 3 {
			addr := fmt.Sprintf("memory:%d", i+1)
			servers[addr] = mockserver.RunT(t, mockserver.WithAddr("memory", addr))
			cfg.Servers = append(cfg.Servers, addr)
		}
		cfg.Dial = func(ctx context.Context, _, addr string) (net.Conn, error) { return servers[addr].Dial(ctx) }
		client, err := throttr.Connect[uint16](t.Context(), cfg)
		require.NoError(t, err)
		defer client.Close()
		publish := make(map[string]func(string, string))
		for addr, srv := range servers {
			publish[addr] = publisher(t, srv)
		}

		everything, own := testkit.Subscribe(t, client, throttr.AllChannel), testkit.Subscribe(t, client, throttr.OwnChannel)
		for addr, srv := range servers {
			require.Equal(t, 3, srv.Conns(), "the pool's, the publisher's, and that of the subscriptions")
			publish[addr]("*", addr)
			m := testkit.Next(t, everything)
			require.Equal(t, throttr.Message{Server: addr, Channel: "*", Payload: []byte(addr)}, m)
			id, ok := own.ConnID(addr)
			require.True(t, ok)
			publish[addr](id.String(), "you")
			require.Equal(t, throttr.Message{Server: addr, Channel: id.String(), Payload: []byte("you")}, testkit.Next(t, own))
			require.Zero(t, srv.Requests(codec.OpSubscribe))
		}
		_, ok := own.ConnID("elsewhere")
		require.False(t, ok)

		used := make(map[string]bool)
		for i := range 20 {
			channel := fmt.Sprint(i)
			sub := testkit.Subscribe(t, client, channel)
			for addr := range servers {
				publish[addr](channel, addr)
			}
			m := testkit.Next(t, sub)
			require.Equal(t, m.Server, string(m.Payload))
			require.Empty(t, testkit.Payloads(t, sub), "it lives on one of them")
			used[m.Server] = true
			// A channel lives where a key of its name does.
			_, err := client.Insert(t.Context(), channel, 1, testkit.Minute)
			require.NoError(t, err)
			_, ok := servers[m.Server].Counter(channel)
			require.True(t, ok)
		}
		require.Len(t, used, 3)

		servers["memory:2"].Disconnect()
		m := testkit.Next(t, everything)
		require.True(t, m.Gap)
		require.Equal(t, "memory:2", m.Server)
		require.Empty(t, testkit.Payloads(t, everything))

		everything.Close()
		own.Close()
		servers["memory:3"].Refuse(true)
		servers["memory:3"].Disconnect()
		synctest.Wait()
		_, err = client.Subscribe(t.Context(), throttr.AllChannel)
		require.Error(t, err, "all must confirm")
	})
}

func TestAGapIsNeverDropped(t *testing.T) {
	for _, policy := range []throttr.Overflow{throttr.DropOldest, throttr.DropNewest} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
				sub := testkit.Subscribe(t, client, "c", throttr.WithQueue(2), throttr.WithOverflow(policy))
				for i := range 5 {
					publish := publisher(t, srv)
					for j := range 3 {
						publish("c", fmt.Sprint(i, j))
					}
					synctest.Wait() // what is under way when a connection is lost is lost with it
					srv.Disconnect()
					time.Sleep(time.Second)
				}
				require.EqualValues(t, 13, sub.Dropped())
				var got []string
				for range 4 - int(policy) {
					m := testkit.Next(t, sub)
					got = append(got, fmt.Sprint(string(m.Payload), m.Gap))
				}
				if policy == throttr.DropOldest {
					require.Equal(t, []string{"true", "4 1false", "4 2false", "true"}, got)
				} else {
					require.Equal(t, []string{"0 0false", "0 1false", "true"}, got)
				}
				require.Empty(t, testkit.Payloads(t, sub))
			})
		})
	}
}

func TestEventsAmongTheAnswersToSubscriptions(t *testing.T) {
	for _, split := range []int{0, 1, 7} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithSplit(split))
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
			loud := testkit.Subscribe(t, client, "loud", throttr.WithQueue(1<<16))
			srv.Inject(mockserver.Fault{Delay: time.Millisecond})
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					sub, err := client.Subscribe(t.Context(), fmt.Sprint(i))
					if err != nil {
						t.Error(err)
						return
					}
					sub.Close()
				})
				srv.Publish("loud", bytes.Repeat([]byte{0, 1, 0x19}, i))
				if i%10 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
			all.Wait()
			time.Sleep(time.Minute)
			for i := range 100 {
				require.Equal(t, bytes.Repeat([]byte{0, 1, 0x19}, i), testkit.Next(t, loud).Payload)
			}
			require.Zero(t, testkit.ServerStats(client).Failures)
			for i := range 100 {
				require.Zero(t, srv.Subscriptions(fmt.Sprint(i)))
			}
		})
	}
}

func TestAnAnswerThatIsLostAmongEventsEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		loud := testkit.Subscribe(t, client, "loud", throttr.WithQueue(1<<10))
		srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Drop: true, Times: 1}) // H4
		stop := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					srv.Publish("loud", nil)
				}
			}
		})
		end := sync.OnceFunc(func() { close(stop) })
		defer end()
		start := time.Now()
		sub := testkit.Subscribe(t, client, "c") // once more, on a new connection
		require.InDelta(t, 7.6, time.Since(start).Seconds(), 1)
		end()
		all.Wait()
		publisher(t, srv)("c", "x")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, sub))
		gaps := 0
		for testkit.Next(t, loud); ; {
			ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
			m, err := loud.Next(ctx)
			cancel()
			if err != nil {
				break
			}
			if m.Gap {
				gaps++
			}
		}
		require.Equal(t, 1, gaps)
	})
}

func TestAServerThatFallsSilentIsNoticedBySubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		sub := testkit.Subscribe(t, client, "c")
		remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Drop: true})
		start := time.Now()
		time.AfterFunc(31*time.Second, remove)
		m, err := sub.Next(t.Context())
		require.NoError(t, err)
		require.True(t, m.Gap)
		require.InDelta(t, 36, time.Since(start).Seconds(), 2)
	})
}

func TestASubscriptionThatTheServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}, Times: 1})
		_, err := client.Subscribe(t.Context(), "c")
		require.ErrorIs(t, err, throttr.ErrRefused)
		synctest.Wait()
		require.Equal(t, 1, srv.Conns())

		sub := testkit.Subscribe(t, client, "c")
		srv.Inject(mockserver.Fault{Op: codec.OpSubscribe, Replace: []byte{0}, Times: 3})
		srv.Disconnect()
		require.True(t, testkit.Next(t, sub).Gap, "it is asked until it does not")
		publisher(t, srv)("c", "x")
		require.Equal(t, []string{"x"}, testkit.Payloads(t, sub))
	})
}

func TestAPublisherWhoIsSubscribedGetsItsOwnMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		sub, everything := testkit.Subscribe(t, client, "c"), testkit.Subscribe(t, client, throttr.AllChannel)
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
