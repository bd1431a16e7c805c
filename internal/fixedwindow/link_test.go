package fixedwindow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// stateOf returns what a backend remembers of a key whose scale is a second.
func stateOf(t testing.TB, b *Backend, key string) *countState {
	t.Helper()
	l := fixed(time.Second, 10)
	e, err := b.stateFor(t.Context(), key, &l, 1)
	require.NoError(t, err)
	return e
}

// planned plans how to open a window that counts one hit.
func (s *countState) planned(t *testing.T) plan {
	t.Helper()
	p, err := s.prepare(t.Context())
	require.NoError(t, err)
	return p
}

// countOne counts one hit, as planned.
func (s *countState) countOne(t *testing.T, p plan) outcome {
	return s.count(t.Context(), &shared{sum: 1, max: 10}, p)
}

func TestActionsThatAreLateEndTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, requests := observed(t)
		b := client(t, srv)
		l := stateOf(t, b, "k").link
		hits(t, b, 1, "other", fixed(time.Second, 10))
		first := l.current.Load()
		remove := srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: 2 * time.Second})
		began := time.Now()
		_, sent, err := b.Hit(t.Context(), "k", fixed(time.Second, 10), 1)
		require.ErrorIs(t, err, conn.ErrLost)
		require.True(t, sent)
		require.Equal(t, stateOf(t, b, "k").bands.Guard, time.Since(began))
		require.False(t, first.Open())
		require.ErrorIs(t, first.Err(), errLate)
		remove()

		requests.take()
		w, _, err := b.Hit(t.Context(), "k", fixed(time.Second, 10), 1)
		require.NoError(t, err)
		require.EqualValues(t, 2, w.Count, "the window that was opened is looked up")
		require.Zero(t, requests.take()[codec.OpInsert])
		require.NotSame(t, first, l.current.Load())
	})
}

// pausing is a network connection whose client stops once for a while, behind a read.
type pausing struct {
	net.Conn
	pause *atomic.Int64
}

func (p pausing) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	time.Sleep(time.Duration(p.pause.Swap(0)))
	return n, err
}

func TestAResponseThatIsNoticedLateSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		var pause atomic.Int64
		o := options(t, srv)
		o.Servers[0] = newPool(t, o.Calls, parking.Never, func(ctx context.Context) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return pausing{nc, &pause}, err
		})
		s := stateOf(t, start(t, o), "k")
		for after, counted := range map[time.Duration]bool{s.bands.Guard - 1: true, s.bands.Guard: false} {
			p := s.planned(t)
			pause.Store(int64(after))
			out := s.countOne(t, p)
			require.Equal(t, counted, out.err == nil, "%v after the lookup", after)
			if !counted {
				require.ErrorIs(t, out.err, errLate)
				require.True(t, out.sent)
			}
			time.Sleep(s.bands.Scale)
			s.forget()
		}
	})
}

func TestActionsAreNotSentLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, requests := observed(t)
		b := client(t, srv)
		s := stateOf(t, b, "k")
		for after, counted := range map[time.Duration]bool{0: true, s.bands.Guard/2 - 1: true, s.bands.Guard / 2: false, s.bands.Guard: false} {
			p := s.planned(t)
			time.Sleep(after)
			out := s.countOne(t, p)
			require.NoError(t, out.err)
			require.Equal(t, counted, out.result == slot.Counted, "%v after the lookup", after)
			changed := requests.take()
			require.Equal(t, counted, changed[codec.OpInsert]+changed[codec.OpUpdate] > 0)
			time.Sleep(s.bands.Scale)
			s.forget()
		}
	})
}

// Looking up again would not help.
func TestAnActionThatCantBeEncodedFails(t *testing.T) {
	srv, requests := observed(t, mockserver.WithValueSize(1))
	s := stateOf(t, client(t, srv), "k")
	c, err := s.link.connect(t.Context())
	require.NoError(t, err)
	a := slot.Action{Kind: slot.GiveBack, Slot: slot.A, By: time.Now().Add(time.Hour)}
	_, sent, err := s.act(t.Context(), c, a, 300)
	require.ErrorContains(t, err, "Value is 300, must be at most 255")
	require.False(t, sent)
	require.Empty(t, requests.take())
}

func TestActionsGoOutOnTheConnectionOfTheirLookup(t *testing.T) {
	for name, ends := range map[string]func(*mockserver.Server, *conn.Conn){
		"retired":    func(_ *mockserver.Server, c *conn.Conn) { c.Retire() },
		"failed":     func(_ *mockserver.Server, c *conn.Conn) { c.Cut(errors.New("test")) },
		"lost":       func(srv *mockserver.Server, _ *conn.Conn) { srv.Disconnect() },
		"restarted":  func(srv *mockserver.Server, _ *conn.Conn) { srv.Restart(false) },
		"data kept":  func(srv *mockserver.Server, _ *conn.Conn) { srv.Restart(true) },
		"recompiled": func(srv *mockserver.Server, _ *conn.Conn) { srv.Recompile(2) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv, requests := observed(t)
				b := client(t, srv)
				s := stateOf(t, b, "k")
				for range 3 { // Create A, Create B and Open A
					p := s.planned(t)
					requests.take()
					ends(srv, p.conn)
					synctest.Wait()
					require.NoError(t, b.Servers[0].(*pool.Pool).Connect(t.Context()))
					out := s.countOne(t, p)
					require.NoError(t, out.err)
					require.Equal(t, slot.Missed, out.result)
					require.Empty(t, requests.take(), "nothing was sent on another connection")

					out = s.countOne(t, s.planned(t))
					require.NoError(t, out.err)
					require.Equal(t, slot.Counted, out.result)
					require.EqualValues(t, 1, out.window.Count)
					time.Sleep(s.bands.Scale + time.Millisecond)
				}
			})
		})
	}
}

// Otherwise requests of others could be executed between those of an action, and its count would not be its own.
func TestActionsFitOneReadOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, requests := observed(t)
		b := client(t, srv)
		l := fixed(10*time.Second, 10)
		taken(t, b, "k", l, 1)
		c := b.links[0][classOf(time.Second)].current.Load()
		other := bytes.Repeat([]byte("x"), 14) // 505 requests have 8080 bytes
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: string(other), Times: 1, Delay: time.Second})
		others := b.Calls.Get()
		for range 505 {
			conn.Add(others, codec.Query{Key: other})
		}
		require.NoError(t, c.Enqueue(others))
		requests.take()
		var all sync.WaitGroup
		all.Go(func() { taken(t, b, "k", l, 1) })
		synctest.Wait()
		require.Zero(t, requests.take()[codec.OpUpdate])
		all.Wait()
		require.Equal(t, 1, requests.take()[codec.OpUpdate])
	})
}

func TestHitsWhoseRepliesComeAfterTheWindowSayNothing(t *testing.T) {
	l := fixed(time.Second, 10)
	for name, count := range map[string]func(ctx context.Context, b *Backend) (w window.Window, sent bool, err error){
		"a hit": func(ctx context.Context, b *Backend) (window.Window, bool, error) { return b.Hit(ctx, "k", l, 1) },
		"takes that are made together": func(ctx context.Context, b *Backend) (window.Window, bool, error) {
			windows := make([]window.Window, 2)
			_, sent, err := b.TakeAll(ctx, []window.Take{l.For("k", 1), l.For("other", 1)}, windows)
			return windows[0], sent, err
		},
	} {
		for _, test := range []struct {
			delay time.Duration
			ok    bool
		}{
			{1400 * time.Millisecond, true}, // less than a guard after the end of the window
			{1501 * time.Millisecond, false},
		} {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t)
				b := client(t, srv)
				hits(t, b, 1, "k", l)
				hits(t, b, 1, "other", l)
				remove := srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Delay: test.delay})
				w, sent, err := count(t.Context(), b)
				if test.ok {
					require.NoError(t, err, name)
					require.EqualValues(t, 2, w.Count)
					return
				}
				require.ErrorIs(t, err, ErrTooLate, name)
				require.True(t, sent, name)
				remove()
				require.Equal(t, 1, hits(t, b, 1, "k", l))
			})
		}
	}
}

func TestALinkIsNotHeldUpByACallerThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, inMemory(t))
		hang := make(chan struct{})
		server := &hooked{Server: o.Servers[0]}
		server.dedicated = func(ctx context.Context) (*conn.Conn, error) {
			select {
			case <-hang:
				return server.Server.Dedicated(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		l := newLink(server, o.Calls, new(atomic.Uint64))
		long, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := l.connect(long); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		synctest.Wait()
		_, err := l.connect(short)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it waits for the first one")
		first.Wait()
		close(hang)
		c, err := l.connect(t.Context())
		require.NoError(t, err)
		again, err := l.connect(t.Context())
		require.NoError(t, err)
		require.Same(t, c, again)
		l.close()
		require.False(t, c.Open())
	})
}

// The records of a client that has died expire. Then the names can't be used for up to 10 s (H1).
func TestHitsWaitForNamesThatCannotBeUsed(t *testing.T) {
	for _, after := range []time.Duration{0, 2 * time.Second, 9 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t)
			b := client(t, srv)
			srv.Set(namesOf(t, "k", time.Second, 2)[slot.A], 100, time.Second)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, 1, srv.Expired())
			time.Sleep(after)
			began := time.Now()
			require.Equal(t, 1, hits(t, b, 1, "k", fixed(time.Second, 10)))
			left := 10*time.Second - after
			require.GreaterOrEqual(t, time.Since(began), left)
			require.LessOrEqual(t, time.Since(began), left+maxPause)
		})
	}
}

// An action that is late ends its connection. The takes and actions of scales that are much longer
// have another one.
func TestLateActionsEndNothingOfLongerScales(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b := client(t, srv)
		long, short := fixed(time.Minute, 1000), fixed(200*time.Millisecond, 10)
		take := func() {
			if w, _, err := b.Take(t.Context(), "long", long, 1); w.Refused || err != nil {
				t.Error(w, err)
			}
		}
		take()
		link := b.links[0][classOf(time.Second)].current.Load()
		hits(t, b, 1, "short", short)
		time.Sleep(2 * short.Scale)
		srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: 300 * time.Millisecond})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for range 10 {
					take()
				}
			})
			all.Go(func() {
				if _, _, err := b.Hit(t.Context(), fmt.Sprint(i), short, 1); !errors.Is(err, conn.ErrLost) {
					t.Errorf("it is not late: %v", err)
				}
			})
		}
		all.Wait()
		w, _, err := b.Take(t.Context(), "long", long, 1)
		require.NoError(t, err)
		require.EqualValues(t, 102, w.Count)
		require.Same(t, link, b.links[0][classOf(time.Second)].current.Load())
		given, _, err := b.GiveBack(t.Context(), "long", long, 100, w.ID)
		require.NoError(t, err)
		require.True(t, given)
	})
}

// A connection that is made while the backend closes is ended, although its caller does not see that yet.
func TestNoConnectionIsMadeAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, inMemory(t))
		made := make(chan *conn.Conn)
		server := &hooked{Server: o.Servers[0]}
		server.dedicated = func(ctx context.Context) (*conn.Conn, error) {
			c, err := server.Server.Dedicated(ctx)
			made <- c // received when the backend is closed
			return c, err
		}
		o.Servers[0] = server
		b := open(o)
		l := stateOf(t, b, "k").link
		failed := make(chan error)
		go func() { // as a caller does that takes from a known window
			_, err := l.connect(t.Context())
			failed <- err
		}()
		synctest.Wait()
		b.Close()
		c := <-made
		require.ErrorIs(t, <-failed, window.ErrClosed)
		require.False(t, c.Open())
		_, err := l.connect(t.Context())
		require.ErrorIs(t, err, window.ErrClosed)
	})
}

// What may have changed a record was sent: a call that has counted on one server before another one failed, whatever
// could be given back, and a Reset without a response.
func TestCallsThatFailTellWhetherTheyWereSent(t *testing.T) {
	for fails, want := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			servers := []*mockserver.Server{inMemory(t), inMemory(t)}
			b, l := start(t, options(t, servers...)), fixed(time.Minute, 10)
			taken(t, b, "a", l, 1)
			taken(t, b, "b", l, 1)
			servers[fails].Refuse(true)
			servers[fails].Disconnect()
			_, sent, err := b.TakeAll(t.Context(), []window.Take{l.For("a", 1), l.For("b", 1)}, make([]window.Window, 2))
			require.Error(t, err)
			require.Equal(t, want, sent, "server %d", fails)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b, l := client(t, srv), fixed(time.Minute, 10)
		taken(t, b, "k", l, 1)
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Disconnect: true})
		sent, err := b.Reset(t.Context(), "k", l)
		require.Error(t, err)
		require.True(t, sent)
	})
}
