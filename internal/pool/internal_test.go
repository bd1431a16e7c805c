package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// withServer returns a pool without a connection, and its server.
func withServer(t *testing.T) (*Pool, *mockserver.Server) {
	srv := mockserver.RunT(t, mockserver.WithAddr("memory", "memory:1"))
	p := New(Options{
		Target: dial.Target{
			Server: "server:1", Calls: conn.NewCalls(conn.SizeOf(2)),
			Dialer: &dial.Dialer{Timeout: time.Second, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return srv.Dial(ctx)
			}},
		},
		MaxConns: 2, MaxInFlight: 512, MaxQueued: 1000, MaxResponse: 16 << 10, StallTimeout: time.Second,
		HealthInterval: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(p.Close)
	return p, srv
}

// admit has p admit a connection that was just made.
func admit(p *Pool, r *puddle.Resource[*conn.Conn]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admit(r)
}

func TestAConnectionThatIsReadyDuringCloseIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		r, err := p.puddle.Acquire(t.Context())
		require.NoError(t, err)
		closed := make(chan struct{})
		go func() {
			p.Close()
			close(closed)
		}()
		synctest.Wait() // Close waits for the connection
		require.ErrorIs(t, admit(p, r), window.ErrClosed)
		<-closed
		synctest.Wait()
		require.Zero(t, srv.Conns())
	})
}

// The context of the attempt may end later than Close has looked for connections.
func TestNoConnectionIsServedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		opened, err := p.open(t.Context(), false)
		require.NoError(t, err)
		p.Close()
		_, err = p.serve(opened, conn.Options{Abort: true, Calls: p.o.Calls, Counters: &p.counters})
		require.ErrorIs(t, err, window.ErrClosed)
		_, err = p.connect(t.Context(), conn.Options{})
		require.ErrorIs(t, err, window.ErrClosed)
		require.EqualValues(t, 1, p.dials.Load(), "nothing is dialed")
		synctest.Wait()
		require.Zero(t, srv.Conns())
	})
}

func TestADedicatedConnectionThatHasEndedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := withServer(t)
		c, err := p.Dedicated(t.Context())
		require.NoError(t, err)
		require.Len(t, p.allDedicated(), 1)
		c.Close(conn.ErrGone)
		require.Empty(t, p.allDedicated())
	})
}

func TestAConnectionThatHasEndedIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		r, err := p.puddle.Acquire(t.Context())
		require.NoError(t, err)
		srv.Disconnect()
		synctest.Wait()
		err = admit(p, r)
		require.ErrorIs(t, err, dial.ErrConnect)
		require.ErrorIs(t, err, conn.ErrLost)
		require.Empty(t, *p.live.Load())
		require.EqualValues(t, 1, p.failures.Load())

		require.True(t, p.tryShared())
		require.Len(t, *p.live.Load(), 1)
		synctest.Wait()
		require.EqualValues(t, 1, p.puddle.Stat().TotalResources(), "the other one is destroyed")
	})
}

func load(requests, calls int) conn.Load { return conn.Load{Requests: requests, Calls: calls} }

// Another connection is useful if many calls share the existing ones, or if their requests
// fill half of what may be in flight. A few calls of some requests each do not make it so.
func TestWhenThePoolShouldGrow(t *testing.T) {
	p := &Pool{o: Options{MaxConns: 4, MaxInFlight: 512}}
	for _, c := range []struct {
		conns, requests, calls int
		want                   bool
	}{
		{1, 0, 0, false}, {1, 47, 47, false}, {1, 48, 48, true},
		{1, 188, 47, false}, {1, 255, 1, false}, {1, 256, 1, true},
		{2, 95, 95, false}, {2, 190, 95, false}, {2, 96, 96, true},
		{3, 143, 143, false}, {3, 144, 144, true},
		{4, 5000, 5000, false}, // MaxConns
	} {
		require.Equal(t, c.want, p.shouldGrow(c.conns, load(c.requests, c.calls)), "%+v", c)
	}
	p.o.MaxInFlight = 1
	require.False(t, p.shouldGrow(1, load(0, 0)))
	require.True(t, p.shouldGrow(1, load(1, 1)))
}

func TestACallGoesToTheConnectionWithTheFewestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		c, _ := p.pick()
		require.Nil(t, c)
		require.True(t, p.tryShared())
		require.True(t, p.tryShared())
		srv.Inject(mockserver.Fault{Drop: true})
		live := *p.live.Load()
		for _, want := range []int{0, 1, 0, 1} { // the first of two
			c, _ := p.pick()
			require.Same(t, live[want].Value(), c)
			cl := p.o.Calls.Get()
			require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
			require.NoError(t, c.Enqueue(cl))
		}
	})
}

func TestTwoSilentAttemptsMakeALockUp(t *testing.T) {
	silent := fmt.Errorf("attempt: %w", dial.ErrSilent)
	other := errors.New("refused")
	type attempt struct {
		begins   time.Duration // before the end of the attempt before; 0 means after it
		err      error
		received uint64
		lockedUp bool
	}
	for name, attempts := range map[string][]attempt{
		"two":                           {{err: silent}, {err: silent, lockedUp: true}, {err: silent, lockedUp: true}},
		"success between them":          {{err: silent}, {}, {err: silent}, {err: silent, lockedUp: true}},
		"another failure between them":  {{err: silent}, {err: other}, {err: silent}, {err: silent, lockedUp: true}},
		"recovery":                      {{err: silent}, {err: silent, lockedUp: true}, {}, {err: silent}},
		"at the same time":              {{err: silent}, {err: silent, begins: time.Second}, {err: silent, lockedUp: true}},
		"a connection receives":         {{err: silent}, {err: silent, received: 1}, {err: silent, received: 2}, {err: silent, received: 2, lockedUp: true}},
		"a connection receives, later":  {{err: silent}, {err: silent, lockedUp: true}, {err: silent, received: 1}},
		"refused until it is restarted": {{err: silent}, {err: silent, lockedUp: true}, {err: other, lockedUp: true}, {}, {err: other}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s silence
				for i, a := range attempts {
					start := time.Now().Add(-a.begins)
					time.Sleep(5 * time.Second)
					before := s.lockedUp
					changed := s.check(a.err, start, a.received)
					require.Equal(t, a.lockedUp, s.lockedUp, i)
					require.Equal(t, a.lockedUp != before, changed, i)
				}
			})
		})
	}
}
