package pool_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// The context of the first caller that needs a connection does not end the attempt that others
// wait for, too.
func TestAnAttemptOutlivesTheCallerThatNeededItFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := newPool(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
			time.Sleep(2 * time.Second)
			return srv.Dial(ctx)
		}, pool.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		done := s.start(1, func(int) {
			if err := s.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		require.NoError(t, s.query(t.Context(), "k").err)
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
		done()
		require.EqualValues(t, 1, s.Stats().Dials)
	})
}

func TestAServerThatIsDownIsTriedAfterGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{srv: testkit.InMemory(t)}
		s := connect(t, g.dial, pool.Options{
			Target:     dial.Target{Dialer: &dial.Dialer{Timeout: 3 * time.Second}},
			MinBackoff: 100 * time.Millisecond, MaxBackoff: 2 * time.Second,
		})
		g.lose()
		require.Zero(t, s.Stats().Conns)
		g.hang.Store(true)
		start := time.Now()
		done := s.start(100, func(int) {
			r := s.purge(t.Context(), "k")
			if !errors.Is(r.err, dial.ErrConnect) || strings.Contains(r.err.Error(), window.ErrUnavailable.Error()) || r.sent {
				t.Errorf("PURGE: %+v", r)
			}
		})
		synctest.Wait()
		require.Equal(t, 100, s.Stats().Acquiring)
		require.Zero(t, s.Stats().Waiting)
		done()
		require.Zero(t, s.Stats().Acquiring)
		require.Equal(t, 3*time.Second, time.Since(start), "dialing is bounded")
		require.EqualValues(t, 2, s.Stats().Dials, "one attempt for all of them")

		g.hang.Store(false)
		g.fail.Store(true)
		time.Sleep(150 * time.Millisecond)
		dials := s.Stats().Dials
		start = time.Now()
		s.inParallel(100, func(int) {
			for range 100 {
				r := s.purge(t.Context(), "k")
				if !errors.Is(r.err, window.ErrUnavailable) || !errors.Is(r.err, errGate) || r.sent {
					t.Errorf("PURGE: %+v", r)
				}
			}
		})
		_, err := s.Dedicated(t.Context())
		require.ErrorIs(t, err, window.ErrUnavailable)
		require.Zero(t, time.Since(start), "no other caller waits")
		require.Equal(t, dials, s.Stats().Dials, "and none makes an attempt")

		time.Sleep(20 * time.Second)
		attempts := s.Stats().Dials - dials
		require.GreaterOrEqual(t, attempts, uint64(3+7), "0.1 (above), 0.3, 0.7, 1.5 s, then every 2 s")
		require.LessOrEqual(t, attempts, uint64(4+12))

		g.fail.Store(false)
		time.Sleep(2200*time.Millisecond + 2*dial.StartUp) // the longest pause, and the new server is awaited
		require.NoError(t, s.purge(t.Context(), "k").err, "the pool has tried again")
	})
}

// A server that could not be reached may have just been started when it can be (H17).
func TestAServerThatCouldNotBeReachedIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{srv: testkit.InMemory(t)}
		g.fail.Store(true)
		var dialed time.Time
		s := newPool(t, func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed = time.Now()
			return g.dial(ctx, network, address)
		}, pool.Options{})
		require.ErrorIs(t, s.Connect(t.Context()), errGate)
		g.fail.Store(false)
		for s.Stats().Conns == 0 {
			time.Sleep(time.Millisecond)
		}
		require.GreaterOrEqual(t, time.Since(dialed), dial.StartUp)
	})
}

func TestAServerThatReturnsWithAnotherValueSizeIsSentOnlyProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		narrow, wide, down := testkit.InMemory(t), testkit.InMemory(t, mockserver.WithValueSize(4)), testkit.InMemory(t)
		down.Refuse(true)
		var current atomic.Pointer[mockserver.Server]
		current.Store(narrow)
		s := connect(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
			return current.Load().Dial(ctx)
		}, pool.Options{})
		current.Store(down)
		narrow.Disconnect()
		synctest.Wait()
		err := s.purge(t.Context(), "k").err
		require.ErrorIs(t, err, dial.ErrConnect)
		require.NotErrorIs(t, err, dial.ErrValueSizeMismatch)
		before := int(s.Stats().Dials)
		current.Store(wide)
		time.Sleep(time.Minute)
		r := s.purge(t.Context(), "k")
		require.ErrorIs(t, r.err, window.ErrUnavailable)
		require.ErrorIs(t, r.err, dial.ErrValueSizeMismatch, "why the last attempt failed")
		require.False(t, r.sent)
		require.Equal(t, int(s.Stats().Dials)-before, wide.Requests(codec.OpInsert))
		require.LessOrEqual(t, wide.Requests(codec.OpInsert), 15, "rarely: each costs an INSERT (H7)")
		require.Zero(t, wide.Conns())
		require.Empty(t, wide.Keys())
		current.Store(narrow)
		time.Sleep(6 * time.Second) // MaxBackoff
		require.NoError(t, s.purge(t.Context(), "k").err)
	})
}

// handshakeBytes is what a server sends on a new connection before it is of use.
const handshakeBytes = codec.ProbeResponses + len("Q") + len("U") + 17 + len("U")

// lingering takes a second to be closed.
type lingering struct{ net.Conn }

func (c lingering) Close() error {
	time.Sleep(time.Second)
	return c.Conn.Close()
}

func TestConnectionsAreOpenedAsTheLoadNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{srv: testkit.InMemory(t)}
		s := connect(t, g.dial, pool.Options{MaxConns: 3, MaxInFlight: 4, MinBackoff: time.Second, MaxBackoff: time.Second})
		for range 100 {
			require.NoError(t, s.query(t.Context(), "k").err)
		}
		require.Equal(t, 1, g.srv.Conns(), "a single caller needs no second connection")
		g.fail.Store(true)
		s.grow(g.srv) // no call fails, although another connection can't be made
		require.EqualValues(t, 2, s.Stats().Dials, "one attempt to grow within MaxBackoff")
		require.EqualValues(t, 1, s.Stats().Failures)
		g.fail.Store(false)
		time.Sleep(time.Second)
		s.grow(g.srv)
		require.Equal(t, 3, g.srv.Conns(), "no more than MaxConns")
		require.Equal(t, 3, s.Stats().Conns)
		require.EqualValues(t, 4, s.Stats().Dials)
	})
}

func requireClosed(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, window.ErrClosed) {
		t.Error(err)
	}
}

// Whatever is under way when the pool is closed ends with it, and Close waits until nothing is left.
func TestCloseEndsWhateverIsUnderWay(t *testing.T) {
	slow := func(g *gate) { g.srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Delay: time.Hour}) }
	query := func(s subject) error { return s.query(s.t.Context(), "k").err }
	for name, c := range map[string]struct {
		before func(g *gate) // of a pool that is connected
		use    func(s subject) error
		users  int
	}{
		"calls":                              {slow, query, 50},
		"calls of a connection being dialed": {func(g *gate) { g.lose(); g.hang.Store(true) }, query, 10},
		"calls of a connection being probed": {func(g *gate) { g.lose(); g.srv.Inject(mockserver.Fault{Drop: true}) }, query, 10},
		"dedicated calls":                    {slow, func(s subject) error { return s.on(s.dedicated()) }, 2},
		"dedicated, being dialed": {func(g *gate) { g.hang.Store(true) }, func(s subject) error {
			_, err := s.Dedicated(s.t.Context())
			return err
		}, 2},
		"a stream, being dialed": {func(g *gate) { g.hang.Store(true) }, func(s subject) error {
			_, _, err := s.list(s.t.Context(), nil)
			return err
		}, 1},
		"a stream without a response": {func(g *gate) { g.srv.Inject(mockserver.Fault{Op: codec.OpList, Delay: time.Hour}) }, func(s subject) error {
			_, sent, err := s.list(s.t.Context(), nil)
			require.True(s.t, sent)
			return err
		}, 1},
		"a stream whose decoder closes the pool": {func(*gate) {}, func(s subject) error {
			_, _, err := s.list(s.t.Context(), func(string) bool {
				s.Close() // does not wait for the decoder that calls it
				return true
			})
			return err
		}, 1},
		"a stream whose parts are taken one by one": {func(g *gate) {
			g.srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: encode(t, records(slices.Repeat([]int{1}, 100)...))})
		}, func(s subject) error {
			_, _, err := s.list(s.t.Context(), func(string) bool {
				time.Sleep(200 * time.Millisecond) // less than the grace
				return true
			})
			return err
		}, 1},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			g := &gate{srv: testkit.InMemory(t)}
			for i := range 2000 { // more than a read of a listing
				g.srv.Set(fmt.Sprint("key", i), 1, time.Hour)
			}
			s := connect(t, func(ctx context.Context, network, address string) (net.Conn, error) {
				nc, err := g.dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return lingering{nc}, nil
			}, pool.Options{MaxConns: 2, MaxInFlight: 5})
			c.before(g)
			lost := s.Stats().Failures
			done := s.start(c.users, func(int) { requireClosed(t, c.use(s)) })
			synctest.Wait()
			start := time.Now()
			s.Close()
			require.LessOrEqual(t, time.Since(start), 2250*time.Millisecond, "the grace, and a second or two to close")
			done()
			s.Close()
			r := s.purge(t.Context(), "k")
			requireClosed(t, r.err)
			require.False(t, r.sent)
			requireClosed(t, s.Connect(t.Context()))
			_, err := s.Dedicated(t.Context())
			requireClosed(t, err)
			_, sent, err := s.list(t.Context(), nil)
			requireClosed(t, err)
			require.False(t, sent)
			synctest.Wait()
			require.Zero(t, s.Stats().Conns+int(s.Stats().Retries))
			require.Equal(t, lost, s.Stats().Failures)
			time.Sleep(2 * time.Hour)
			require.Zero(t, g.srv.Conns())
		})
	}
}

// What goes wrong behind the probe ends the attempt: the connection is closed and counted when its caller learns it.
func TestAConnectionThatCannotBePreparedIsAFailureToConnect(t *testing.T) {
	events := func(ctx context.Context, s subject) error {
		_, err := s.ForEvents(ctx, func(conn.Event) {})
		return err
	}
	dedicated := func(ctx context.Context, s subject) error {
		_, err := s.Dedicated(ctx)
		return err
	}
	for step, op := range map[string]codec.Op{"parking": codec.OpUpdate, "unsubscribing": codec.OpUnsubscribe} {
		for name, c := range map[string]struct {
			fault mockserver.Fault
			want  error
		}{
			"the end":     {mockserver.Fault{Disconnect: true}, conn.ErrLost},
			"no status":   {mockserver.Fault{Replace: []byte{7}}, conn.ErrProtocol},
			"two of them": {mockserver.Fault{Replace: []byte{1, 1}}, conn.ErrProtocol},
			"silence":     {mockserver.Fault{Drop: true}, os.ErrDeadlineExceeded},
		} {
			for kind, open := range map[string]func(context.Context, subject) error{
				"shared":    func(ctx context.Context, s subject) error { return s.Connect(ctx) },
				"dedicated": dedicated, "events": events,
			} {
				if kind == "events" && op == codec.OpUnsubscribe {
					continue // it stays subscribed
				}
				testkit.Bubble(t, step+"/"+name+"/"+kind, func(t *testing.T) {
					srv := testkit.InMemory(t)
					s := newPool(t, to(srv), pool.Options{Parking: parking.Always, MinBackoff: time.Minute, MaxBackoff: time.Minute})
					shared := 0
					if kind != "shared" {
						require.NoError(t, s.Connect(t.Context()))
						shared = 1
					}
					c.fault.Op = op
					c.fault.Times = 1
					if op == codec.OpUnsubscribe {
						c.fault.Skip = 1 // that of the probe
					}
					remove := srv.Inject(c.fault)
					start := time.Now()
					err := open(t.Context(), s)
					require.ErrorIs(t, err, dial.ErrConnect)
					require.ErrorIs(t, err, c.want)
					require.LessOrEqual(t, time.Since(start), 5*time.Second)
					require.EqualValues(t, 1, s.Stats().Failures)
					synctest.Wait()
					require.Equal(t, shared, srv.Conns())
					remove()
					time.Sleep(2 * time.Minute)
					require.NoError(t, open(t.Context(), s))
				})
			}
		}
	}
}

// What a connection that can't be prepared has received is handed out before its caller learns that, and not beside
// the EVENTs of the next one.
func TestNoEventComesFromAConnectionThatCouldNotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{Parking: parking.Always})
		defer srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Drop: true})()
		time.AfterFunc(time.Second, func() { srv.Publish("*", []byte("x")) })
		handed := 0
		_, err := s.ForEvents(t.Context(), func(conn.Event) {
			time.Sleep(10 * time.Second)
			handed++
		})
		require.ErrorIs(t, err, dial.ErrConnect)
		require.Equal(t, 1, handed)
	})
}

// A server ends each connection right after the handshake, or in its midst.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	for _, after := range []int{codec.ProbeResponses, handshakeBytes} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			s := connect(t, to(srv), pool.Options{MaxConns: 3, MaxInFlight: 4, MaxRetries: 100})
			srv.Cut(mockserver.Cut{Direction: mockserver.ToClient, After: after})
			s.grow(srv) // beside others, that opens no circuit, before or after calls can be sent on it
			synctest.Wait()
			st := s.Stats()
			require.Greater(t, st.Dials, uint64(1))
			require.EqualValues(t, st.Dials, int(st.Failures)+st.Conns)
			if after == codec.ProbeResponses {
				require.Equal(t, 1, st.Conns)
			}

			srv.Disconnect()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := s.query(ctx, "k").err
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded, "callers are not kept for ever")
			require.LessOrEqual(t, s.Stats().Dials-st.Dials, uint64(101))
		})
	}
}

// A call on a connection that is lost is sent again if it was not sent or only reads.
func TestWhichCallsAreSentAgain(t *testing.T) {
	query, update := codec.Query{Key: []byte("k")}, codec.Update[uint16]{Key: []byte("k"), Change: codec.Increase, Value: 1}
	for _, c := range []struct {
		name   string
		call   []codec.Request
		queued bool // behind another call, when the connection is lost
		again  bool
	}{
		{"a read that was sent", []codec.Request{query, query}, false, true},
		{"a write that was sent", []codec.Request{update}, false, false},
		{"inspections that were sent", []codec.Request{codec.Stat{Key: []byte("k")}, codec.Info{}, codec.WhoAmI{}}, false, true},
		{"a message that was sent", []codec.Request{codec.Publish[uint16]{Channel: []byte("c")}}, false, false},
		{"a read and a write that were sent", []codec.Request{query, update}, false, false},
		{"a read that was not sent", []codec.Request{query}, true, true},
		{"a write that was not sent", []codec.Request{update}, true, true},
		{"a read and a write that were not sent", []codec.Request{query, update}, true, true},
	} {
		testkit.Bubble(t, c.name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			srv.Set("k", 1, time.Minute)
			s := connect(t, to(srv), pool.Options{MaxConns: 1, MaxInFlight: 1})
			slow := srv.Inject(mockserver.Fault{Delay: time.Hour})
			var callers sync.WaitGroup
			if c.queued {
				callers.Go(func() {
					if r := s.purge(t.Context(), "other"); r.err == nil || !r.sent {
						t.Errorf("PURGE: %+v", r)
					}
				})
				synctest.Wait()
			}
			var sent bool
			var err error
			callers.Go(func() {
				cl := s.calls.Get()
				for _, r := range c.call {
					if err := conn.Add(cl, r); err != nil {
						t.Error(err)
					}
				}
				_, sent, err = s.Do(t.Context(), cl)
				if err == nil && len(cl.Responses) != len(c.call) {
					t.Errorf("%d responses", len(cl.Responses))
				}
			})
			synctest.Wait()
			slow()
			srv.Disconnect()
			callers.Wait()
			quota, _ := srv.Counter("k")
			if c.again {
				require.NoError(t, err)
				require.EqualValues(t, 1, s.Stats().Retries)
			} else {
				require.ErrorIs(t, err, conn.ErrLost)
				require.True(t, sent)
				require.Zero(t, s.Stats().Retries)
			}
			updates := srv.Requests(codec.OpUpdate)
			require.EqualValues(t, 1+updates, quota)
			require.LessOrEqual(t, updates, 1)
		})
	}
}

// A call that is not queued still belongs to its caller.
func TestACallThatIsTooLateIsNotSent(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for want, ctx := range map[error]context.Context{conn.ErrStale: t.Context(), context.Canceled: canceled} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			s := connect(t, to(srv), pool.Options{})
			cl := s.calls.Get()
			require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
			cl.Stale = func() bool { return true }
			done, sent, err := s.Do(ctx, cl)
			require.True(t, done)
			require.False(t, sent)
			require.ErrorIs(t, err, want)
			require.Zero(t, s.Stats().Retries)
			require.Zero(t, s.queries(srv))
		})
	}
}

// Reads are under way when the connection is lost, and can't be sent again. The error is both.
func TestARetryEndsWithoutAServer(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(g *gate)
		want  error
		took  time.Duration
	}{
		"it is gone":            {func(g *gate) { g.fail.Store(true) }, errGate, 0},
		"their context is over": {func(g *gate) { g.hang.Store(true) }, context.DeadlineExceeded, time.Second},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			g := &gate{srv: testkit.InMemory(t)}
			s := connect(t, g.dial, pool.Options{MaxRetries: 100})
			g.srv.Inject(mockserver.Fault{Delay: time.Hour})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			done := s.start(40, func(int) { // too few to open another connection
				r := s.query(ctx, "k")
				if !errors.Is(r.err, c.want) || !errors.Is(r.err, conn.ErrLost) || !r.sent {
					t.Errorf("QUERY: %+v", r)
				}
			})
			time.Sleep(time.Second)
			c.leave(g)
			start := time.Now()
			g.srv.Disconnect()
			done()
			require.Equal(t, c.took, time.Since(start))
			require.EqualValues(t, 2, s.Stats().Dials, "one attempt for all")
		})
	}
}

// Sent is about all attempts, not only the last.
func TestACallThatWasSentOnceMayHaveBeenExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{})
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true, Times: 1})
		cl := s.calls.Get()
		require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
		attempts := 0
		cl.Stale = func() bool { attempts++; return attempts == 2 }
		_, sent, err := s.Do(t.Context(), cl)
		require.ErrorIs(t, err, conn.ErrStale, "the second attempt")
		require.True(t, sent)
		require.Equal(t, 1, s.queries(srv))
	})
}
