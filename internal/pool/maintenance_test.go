package pool_test

import (
	"context"
	"io"
	"net"
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
)

func TestAnOldConnectionIsReplacedAndNoCallIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: 13 * time.Millisecond})
		s := connect(t, to(srv), pool.Options{
			MaxConns: 2, MaxInFlight: 5, MaxRetries: -1, MaxConnAge: time.Second, HealthInterval: 100 * time.Millisecond,
			StallTimeout: 20 * time.Millisecond, // less than a call waits until it is sent
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

// dedicated returns a dedicated connection.
func (s subject) dedicated() *conn.Conn {
	s.t.Helper()
	c, err := s.Dedicated(s.t.Context())
	require.NoError(s.t, err)
	return c
}

// on makes a QUERY on a connection.
func (s subject) on(c *conn.Conn) error {
	cl := s.calls.Get()
	if err := conn.Add(cl, codec.Query{Key: []byte("k")}); err != nil {
		return err
	}
	if err := c.Enqueue(cl); err != nil {
		return err
	}
	_, _, err := cl.Wait(s.t.Context())
	return err
}

// A connection that fails with requests in flight must not deliver them later: it sends a reset.
func TestDedicatedConnectionsFailWithAReset(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ends := make(chan error, 3) // of the connections
	go func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				if err := testkit.Handshake(nc, 2); err != nil {
					t.Error(err)
				}
				_, err := io.Copy(io.Discard, nc)
				ends <- err
			}()
		}
	}()
	s := connect(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	}, pool.Options{MaxConns: 1})
	defer listener.Close()
	c := s.dedicated()
	c.Close(errGate)
	require.NoError(t, <-ends, "a connection without requests in flight ends in the ordinary way")
	c = s.dedicated()
	cl := s.calls.Get()
	require.NoError(t, conn.Add(cl, codec.Query{Key: []byte("k")}))
	require.NoError(t, c.Enqueue(cl))
	c.Cut(errGate)
	_, _, err = cl.Wait(t.Context())
	require.ErrorIs(t, err, errGate)
	require.ErrorContains(t, <-ends, "reset")
	s.Close()
	require.NoError(t, <-ends, "and so do shared connections")
}

func TestDedicatedConnectionsAreNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{MaxConns: 1, MaxConnAge: 10 * time.Minute, MaxConnIdle: 5 * time.Minute})
		first, second := s.dedicated(), s.dedicated()
		require.NotSame(t, first, second)
		require.Equal(t, 1, s.Stats().Conns)
		require.Equal(t, 3, srv.Conns())
		srv.Inject(mockserver.Fault{Delay: time.Second})
		wait := s.start(20, func(int) { s.query(t.Context(), "k") })
		synctest.Wait()
		require.Zero(t, first.Load())
		require.Zero(t, second.Load())
		wait()
		for range 9 { // the first is in use, and so it becomes old
			require.NoError(t, s.on(first))
			time.Sleep(time.Minute)
		}
		require.True(t, first.Open())
		require.False(t, second.Open())
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, s.on(first), conn.ErrGone)
		<-first.Done()
	})
}

// insert creates a record.
func (s subject) insert(t *testing.T, key string, quota uint16) {
	t.Helper()
	r := s.do(t.Context(), codec.Insert[uint16]{Key: []byte(key), Quota: quota, TTL: codec.TTL[uint16]{Amount: 60, Unit: codec.Seconds}})
	if r.err != nil || !r.response.OK {
		t.Errorf("INSERT %s: %+v", key, r)
	}
}

func TestCallsThatCreateRecordsKeepTheServerParked(t *testing.T) {
	for name, c := range map[string]struct {
		mode    parking.Mode
		hold    bool
		parked  bool // before the pool connects
		updates int
	}{
		"not parked":                   {parking.Automatic, false, false, 0},
		"not parked, held":             {parking.Automatic, true, false, 1},
		"parked":                       {parking.Automatic, false, true, 1},
		"parked, held":                 {parking.Automatic, true, true, 1},
		"parking is off":               {parking.Never, true, false, 0},
		"parking is off, and parked":   {parking.Never, true, true, 1},
		"always":                       {parking.Always, false, false, 1},
		"always, parked and also held": {parking.Always, true, true, 1},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			if c.parked {
				connect(t, to(srv), pool.Options{Parking: parking.Always})
			}
			s := connect(t, to(srv), pool.Options{Parking: c.mode})
			if c.hold {
				s.KeepParked()
			}
			before := srv.Requests(codec.OpUpdate)
			s.insert(t, "k", 0)
			require.Equal(t, c.updates, srv.Requests(codec.OpUpdate)-before)
			require.True(t, s.do(t.Context(), codec.Set[uint16]{Key: []byte("buffer"), TTL: codec.TTL[uint16]{Amount: 1, Unit: codec.Hours}}).response.OK)
			require.Equal(t, 2*c.updates, srv.Requests(codec.OpUpdate)-before)
			s.query(t.Context(), "k")
			s.purge(t.Context(), "k")
			require.Equal(t, 2*c.updates, srv.Requests(codec.OpUpdate)-before)
			if c.mode == parking.Never {
				require.NoError(t, s.Park(t.Context()))
				require.Equal(t, c.parked, s.Parked())
			}
		})
	}
}

// What has become of the parking record is seen in time, also by a pool that does not park the server.
func TestAServerThatIsNotParkedAnyMore(t *testing.T) {
	for name, change := range map[string]func(srv *mockserver.Server){
		"the record is gone":   func(srv *mockserver.Server) { srv.Delete("") },
		"it has another unit":  func(srv *mockserver.Server) { srv.Set("", 'P', time.Hour) },
		"it has another quota": func(srv *mockserver.Server) { srv.Set("", 1, 60_000*time.Hour) },
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			first := connect(t, to(srv), pool.Options{})
			require.False(t, first.Parked())
			require.NoError(t, first.Park(t.Context()))
			require.True(t, first.Parked())
			require.True(t, first.Stats().Parked)
			require.Equal(t, []string{""}, srv.Keys())
			first.Close()
			s := connect(t, to(srv), pool.Options{})
			require.True(t, s.Parked())
			change(srv)
			time.Sleep(time.Minute) // health checks
			require.False(t, s.Parked())
			srv.Delete("")
			connect(t, to(srv), pool.Options{Parking: parking.Always}).Close()
			time.Sleep(time.Minute + time.Second)
			require.True(t, s.Parked())
			before := srv.Requests(codec.OpUpdate)
			s.insert(t, "k", 0)
			require.Equal(t, before+1, srv.Requests(codec.OpUpdate))
		})
	}
}

// A caller that leaves while its connection is made may leave the server's timer as the probe has set it. Nobody knows
// that the server is parked but for this probe.
func TestAServerIsKeptParkedAfterAConnectionThatWasNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{})
		connect(t, to(srv), pool.Options{Parking: parking.Always})
		synctest.Wait()
		before := srv.Requests(codec.OpUpdate)
		srv.Inject(mockserver.Fault{Op: codec.OpUpdate, Drop: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Dedicated(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, before+2, srv.Requests(codec.OpUpdate), "again by way of the shared connection")
	})
}

// The pool looks for the parking record and pings at the same time: with few requests in flight, an idle pool would
// grow.
func TestNoConnectionIsMadeToKeepAServerParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		s := connect(t, to(srv), pool.Options{MaxInFlight: 1})
		srv.Inject(mockserver.Fault{Key: "slow", Delay: time.Second})
		wait := s.start(1, func(int) { s.query(t.Context(), "slow") })
		synctest.Wait()
		require.NoError(t, s.Park(t.Context()))
		wait()
		require.EqualValues(t, 1, s.Stats().Dials)
	})
}
