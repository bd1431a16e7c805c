package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestAnOldConnectionIsReplacedAndNoCallIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: 13 * time.Millisecond})
		s := connect(t, to(srv), pool.Options{
			MaxConns: 2, MaxInFlight: 20, MaxRetries: -1, MaxConnAge: time.Second, HealthInterval: 100 * time.Millisecond,
		})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		s.inParallel(60, func(int) {
			for ctx.Err() == nil {
				if err := s.purge(t.Context(), "k").err; err != nil {
					t.Error(err)
				}
			}
		})
		st := s.Stats()
		require.GreaterOrEqual(t, st.Dials, uint64(2*9), "10 s at 1 s each")
		require.LessOrEqual(t, st.Dials, uint64(2*11))
		require.Zero(t, st.Failures)
		require.Zero(t, st.Retries)
		time.Sleep(time.Second)
		require.LessOrEqual(t, srv.Conns(), 2, "the old ones are closed")
	})
}

func TestAnOldConnectionIsKeptUntilThereIsAnother(t *testing.T) {
	for _, maxConns := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			g := &gate{srv: testkit.InMemory(t)}
			s := connect(t, g.dial, pool.Options{
				MaxConns: maxConns, MaxRetries: -1, MaxConnAge: time.Minute, HealthInterval: time.Second, MaxBackoff: time.Second,
			})
			s.grow(g.srv) // if it may: all are too old at a time then
			g.fail.Store(true)
			for range 300 {
				time.Sleep(time.Second)
				require.NoError(t, s.purge(t.Context(), "k").err)
			}
			require.Equal(t, 1, s.Stats().Conns)
			time.Sleep(time.Second / 2) // the maintenance is not at work now
			g.fail.Store(false)
			dials := s.Stats().Dials
			time.Sleep(5 * time.Second)
			require.Equal(t, dials+1, s.Stats().Dials, "it is replaced once")
			require.Equal(t, 1, s.Stats().Conns)
			require.Equal(t, 1, g.srv.Conns(), "the old one is closed")
		})
	}
}

func TestIdleConnectionsAreClosedExceptOne(t *testing.T) {
	for name, c := range map[string]struct {
		maxIdle   time.Duration
		sleep     time.Duration
		conns     int // besides the dedicated one
		dedicated bool
	}{
		"not yet":   {time.Minute, 55 * time.Second, 4, true},
		"idle":      {time.Minute, 75 * time.Second, 1, false},
		"long idle": {time.Minute, time.Hour, 1, false},
		"unlimited": {-1, 2 * time.Hour, 4, true},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			s := connect(t, to(srv), pool.Options{
				MaxConns: 4, MaxInFlight: 2, MaxConnIdle: c.maxIdle, MaxConnAge: -1, HealthInterval: 10 * time.Second,
			})
			dedicated := s.dedicated()
			s.grow(srv)
			require.Equal(t, 5, srv.Conns())
			time.Sleep(c.sleep)
			require.Equal(t, c.conns, s.Stats().Conns)
			require.Equal(t, c.dedicated, dedicated.Open())
			require.EqualValues(t, 5, s.Stats().Dials)
			require.Zero(t, s.Stats().Failures)
		})
	}
}

// Of a server that has gone silent, each connection ends although it has nothing to do.
func TestIdleConnectionsArePingedAndSilentOnesClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{HealthInterval: 10 * time.Second, StallTimeout: 2 * time.Second})
		dedicated := s.dedicated()
		slow := srv.Inject(mockserver.Fault{Op: codec.OpPurge, Delay: 1900 * time.Millisecond})
		time.Sleep(9 * time.Second)
		require.NoError(t, s.purge(t.Context(), "k").err) // is in flight when the first ping is due
		slow()
		time.Sleep(24 * time.Second)
		require.Equal(t, 3+2+3, s.queries(srv), "two pings, those of the other connection, and looks for the parking record")
		remove := srv.Inject(mockserver.Fault{Drop: true})
		time.Sleep(8 * time.Second)
		require.EqualValues(t, 2, s.Stats().Failures, "both were pinged at once")
		require.ErrorIs(t, dedicated.Err(), conn.ErrStalled)
		require.Zero(t, srv.Conns())
		remove()
		start := time.Now()
		require.NoError(t, s.query(t.Context(), "k").err)
		require.Equal(t, dial.StartUp, time.Since(start), "the caller does not wait for a stall")
	})
}
