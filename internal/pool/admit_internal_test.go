package pool

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/puddle/v2"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// withServer returns a pool without a connection, and its server.
func withServer(t *testing.T) (*Pool[uint16], *mockserver.Server) {
	srv := mockserver.RunT(t, mockserver.WithAddr("memory", "memory:1"))
	p, err := New(Options[uint16]{
		Server: "server:1", Calls: new(conn.CallPool[uint16]),
		Dialer: &dial.Dialer{Timeout: time.Second, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return srv.Dial(ctx)
		}},
		MaxConns: 2, MaxInFlight: 512, MaxQueued: 1000, MaxResponse: 16 << 10, StallTimeout: time.Second,
		HealthInterval: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, srv
}

func TestAConnectionThatIsReadyDuringCloseIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		r, err := p.shared.puddle.Acquire(t.Context())
		require.NoError(t, err)
		closed := make(chan struct{})
		go func() {
			p.Close()
			close(closed)
		}()
		synctest.Wait() // Close waits for the connection
		require.ErrorIs(t, p.shared.admit(r, nil), window.ErrClosed)
		<-closed
		synctest.Wait()
		require.Zero(t, srv.Conns())
	})
}

func TestAConnectionThatHasEndedIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		r, err := p.shared.puddle.Acquire(t.Context())
		require.NoError(t, err)
		srv.Disconnect()
		synctest.Wait()
		err = p.shared.admit(r, nil)
		require.ErrorIs(t, err, dial.ErrConnect)
		require.ErrorIs(t, err, conn.ErrLost)
		require.Empty(t, p.shared.live)
		require.EqualValues(t, 1, p.failures.Load())

		require.NoError(t, p.shared.connect())
		require.Len(t, p.shared.live, 1)
		synctest.Wait()
		require.EqualValues(t, 1, p.shared.puddle.Stat().TotalResources(), "the other one is destroyed")
	})
}

func TestDiscardingAConnectionTwiceDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, srv := withServer(t)
		require.NoError(t, p.Connect(t.Context()))
		c := (*p.shared.conns.Load())[0]
		p.shared.discard(c)
		p.shared.discard(c)
		require.Empty(t, *p.shared.conns.Load())
		require.Equal(t, 1, srv.Conns(), "it has not ended")
		c.Retire()
		synctest.Wait()
		require.Zero(t, srv.Conns())
		require.Zero(t, p.failures.Load())
	})
}

// A caller that finds a lost connection discards it, and may begin another attempt before the connection reports its
// end.
func TestALossIsKnownBeforeTheEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := withServer(t)
		options := conn.Options[uint16]{MaxInFlight: 1, MaxQueued: 1, StallTimeout: time.Second, Calls: p.o.Calls, Counters: &p.counters}
		var err error
		p.shared.puddle, err = puddle.NewPool(&puddle.Config[*conn.Conn[uint16]]{
			Constructor: func(ctx context.Context) (*conn.Conn[uint16], error) {
				nc, early, err := p.open(ctx, false)
				return conn.New(nc, early, options), err
			},
			Destructor: func(c *conn.Conn[uint16]) { c.Close(window.ErrClosed) },
			MaxSize:    2,
		})
		require.NoError(t, err)
		for _, lost := range []bool{false, true} {
			require.NoError(t, p.shared.connect())
			require.False(t, p.mayHaveRestarted.Load())
			c := (*p.shared.conns.Load())[0]
			if lost {
				c.Fail(conn.ErrLost)
			} else {
				c.Retire()
			}
			p.shared.discard(c)
			require.Equal(t, lost, p.mayHaveRestarted.Load())
		}
	})
}
