package transport_test

import (
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

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestConnectionsOpenAsLoadNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 3, MaxInFlight: 10}))
		require.Equal(t, 1, srv.Conns())
		for range 100 {
			_, _, err := client.Query(t.Context(), "k")
			require.NoError(t, err)
		}
		require.Equal(t, 1, srv.Conns(), "one caller alone needs no second one")

		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		var callers sync.WaitGroup
		for range 200 {
			callers.Go(func() {
				for range 5 {
					if _, _, err := client.Query(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		require.Equal(t, 3, srv.Conns())
		require.Equal(t, 3, testkit.ServerStats(client).Conns)
		require.EqualValues(t, 3, testkit.ServerStats(client).Dials)
	})
}

func TestALostConnectionIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		for i := range 10 {
			srv.Disconnect()
			synctest.Wait()
			require.Zero(t, testkit.ServerStats(client).Conns)
			ok, err := client.Insert(t.Context(), fmt.Sprint(i), 1, testkit.Minute)
			require.NoError(t, err)
			require.True(t, ok)
		}
		require.EqualValues(t, 11, testkit.ServerStats(client).Dials)
		require.EqualValues(t, 10, testkit.ServerStats(client).Failures)
	})
}

func TestReadsOutliveARestartAndOthersAreToldTruthfully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var executed journal
		srv := testkit.InMemory(t, mockserver.WithObserver(executed.observe))
		srv.Set("k", 5, time.Minute)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 2}))
		srv.Inject(mockserver.Fault{Delay: time.Millisecond, Times: 200})
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				c, ok, err := client.Query(t.Context(), "k")
				if err != nil || !ok || c.Quota != 5 {
					t.Errorf("query: %v %v %v", c, ok, err)
				}
			})
			callers.Go(func() {
				_, err := client.Insert(t.Context(), fmt.Sprint("i", i), 1, testkit.Minute)
				if !errors.Is(err, throttr.ErrConnLost) || throttr.SafeToRetry(err) {
					t.Errorf("insert: %v", err)
				}
			})
		}
		synctest.Wait()
		require.NoError(t, srv.Restart(true))
		callers.Wait()
		for i := range 50 {
			require.LessOrEqual(t, executed.times(codec.OpInsert, fmt.Sprint("i", i)), 1)
		}
		require.Positive(t, testkit.ServerStats(client).Retries)
	})
}

func TestAnOldConnectionIsReplacedAndNoRequestIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Delay: 13 * time.Millisecond})
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{
			MaxConns: 2, MaxInFlight: 20, MaxConnAge: time.Second, HealthInterval: 100 * time.Millisecond,
		})))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		var callers sync.WaitGroup
		var inserted atomic.Int64
		for i := range 60 {
			callers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := fmt.Sprint(i, " ", n)
					ok, err := client.Insert(t.Context(), key, 1, testkit.Minute)
					if err != nil || !ok {
						t.Errorf("%s: %v %v", key, ok, err)
					}
					inserted.Add(1)
				}
			})
		}
		callers.Wait()
		s := testkit.ServerStats(client)
		require.GreaterOrEqual(t, s.Dials, uint64(2*9), "10 s at 1 s each")
		require.LessOrEqual(t, s.Dials, uint64(2*11))
		require.Zero(t, s.Failures)
		require.EqualValues(t, inserted.Load(), s.Answered)
		time.Sleep(time.Second)
		require.LessOrEqual(t, srv.Conns(), 2, "the old ones are gone")
	})
}

func TestIdleConnectionsAreClosedSaveForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			MaxConns: 4, MaxInFlight: 2, MaxConnIdle: time.Minute, MaxConnAge: -1, HealthInterval: 10 * time.Second,
		}))
		remove := srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				for range 20 {
					if _, _, err := client.Query(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		remove()
		require.Equal(t, 4, srv.Conns())
		time.Sleep(55 * time.Second)
		require.Equal(t, 4, srv.Conns())
		time.Sleep(20 * time.Second)
		require.Equal(t, 1, srv.Conns())
		time.Sleep(time.Hour)
		require.Equal(t, 1, srv.Conns(), "the last one stays")
		require.EqualValues(t, 4, testkit.ServerStats(client).Dials)
		require.Zero(t, testkit.ServerStats(client).Failures)
	})
}

func TestAnIdleConnectionIsCheckedAndASilentOneGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			HealthInterval: 10 * time.Second, StallTimeout: 2 * time.Second,
		}))
		time.Sleep(35 * time.Second)
		require.Equal(t, 3, srv.Requests(codec.OpQuery))
		remove := srv.Inject(mockserver.Fault{Drop: true})
		time.Sleep(8 * time.Second)
		require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
		require.Zero(t, srv.Conns())
		remove()
		start := time.Now()
		_, _, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
		require.Zero(t, time.Since(start), "the caller does not wait for a stall")
	})
}

func TestTooManyWhoWaitAreRefusedAndSendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var executed journal
		srv := testkit.InMemory(t, mockserver.WithObserver(executed.observe))
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 3, MaxWaiting: 5}))
		srv.Inject(mockserver.Fault{Delay: time.Second})
		errs := make([]error, 20)
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, errs[i] = client.Insert(t.Context(), fmt.Sprint(i), 1, testkit.Minute) })
			synctest.Wait()
		}
		require.Equal(t, 3, testkit.ServerStats(client).InFlight)
		require.Equal(t, 5, testkit.ServerStats(client).Waiting)
		callers.Wait()
		refused := 0
		for i, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, throttr.ErrOverloaded)
				require.True(t, throttr.SafeToRetry(err))
				require.Zero(t, executed.times(codec.OpInsert, fmt.Sprint(i)))
				refused++
			}
		}
		require.Equal(t, 20-3-5, refused)
	})
}

// behindGate returns a client that has lost its connection, and whose gate is open.
func behindGate(t *testing.T, cfg throttr.Config) (*throttr.Client[uint16], *testkit.Gate) {
	g := &testkit.Gate{Server: testkit.InMemory(t)}
	cfg.Dial = g.Dial
	client := testkit.Connect[uint16](t, g.Server, cfg)
	g.Server.Disconnect()
	synctest.Wait()
	return client, g
}

func TestAFailureToConnectIsToldToAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := behindGate(t, throttr.Config{ConnectTimeout: 3 * time.Second})
		g.Hang.Store(true)
		start := time.Now()
		errs := make([]error, 100)
		var callers sync.WaitGroup
		for i := range errs {
			callers.Go(func() { _, errs[i] = client.Purge(t.Context(), "k") })
		}
		synctest.Wait()
		require.Equal(t, 100, testkit.ServerStats(client).Acquiring)
		callers.Wait()
		require.Equal(t, 3*time.Second, time.Since(start), "the dial is bounded")
		for _, err := range errs {
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.True(t, throttr.Timeout(err))
			require.True(t, throttr.SafeToRetry(err))
		}
		require.EqualValues(t, 2, testkit.ServerStats(client).Dials, "one attempt for all of them")

		g.Hang.Store(false)
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrUnavailable, "it is left alone for a while")
		<-time.After(time.Second)
		_, err = client.Purge(t.Context(), "k")
		require.NoError(t, err)
	})
}

func TestACallerDoesNotWaitForADialBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := behindGate(t, throttr.Config{ConnectTimeout: time.Minute})
		g.Hang.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := client.Purge(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, throttr.SafeToRetry(err))
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAServerThatTakesConnectionsAndIsSilentIsBoundedByTheConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Inject(mockserver.Fault{Drop: true})
		cfg := testkit.Over(srv, throttr.Config{Servers: []string{srv.Addr()}, ConnectTimeout: time.Second})
		start := time.Now()
		_, err := throttr.Connect[uint16](t.Context(), cfg)
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's has not passed")
		require.True(t, throttr.Timeout(err))
		require.ErrorContains(t, err, "no response for 1s")
		require.Equal(t, time.Second, time.Since(start))

		_, err = throttr.ProbeValueSize(t.Context(), cfg, srv.Addr())
		require.ErrorContains(t, err, "no response for 1s")
	})
}

// lingering takes a second to be closed.
type lingering struct{ net.Conn }

func (c lingering) Close() error {
	time.Sleep(time.Second)
	return c.Conn.Close()
}

func TestCloseFailsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		cfg := throttr.Config{MaxConns: 2, MaxInFlight: 5, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return lingering{nc}, err
		}}
		client := testkit.Connect[uint16](t, srv, cfg)
		srv.Inject(mockserver.Fault{Delay: time.Hour})
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				_, _, err := client.Query(t.Context(), "k")
				if !errors.Is(err, throttr.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		var closers sync.WaitGroup
		for range 5 {
			closers.Go(func() {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
				if time.Since(start) < time.Second {
					t.Error("Close has returned before the connections were closed")
				}
			})
		}
		closers.Wait()
		callers.Wait()
		require.NoError(t, client.Close())
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrClosed)
		require.True(t, throttr.SafeToRetry(err))
		var b throttr.Batch[uint16]
		b.Query("k")
		require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrClosed)
		require.Zero(t, testkit.ServerStats(client).Conns)
	})
}

func TestCloseDoesNotWaitForADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := behindGate(t, throttr.Config{ConnectTimeout: time.Hour})
		g.Hang.Store(true)
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				_, _, err := client.Query(t.Context(), "k")
				if !errors.Is(err, throttr.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, client.Close())
		require.Zero(t, time.Since(start))
		callers.Wait()
	})
}

func TestCloseDoesNotWaitForAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := behindGate(t, throttr.Config{ConnectTimeout: time.Hour})
		g.Server.Inject(mockserver.Fault{Drop: true})
		var callers sync.WaitGroup
		callers.Go(func() {
			_, _, err := client.Query(t.Context(), "k")
			if !errors.Is(err, throttr.ErrClosed) {
				t.Error(err)
			}
		})
		synctest.Wait()
		require.Equal(t, 1, g.Server.Conns())
		start := time.Now()
		require.NoError(t, client.Close())
		require.Zero(t, time.Since(start))
		callers.Wait()
	})
}

func TestNoGoroutineOutlivesAClient(t *testing.T) {
	srv, err := mockserver.Start()
	require.NoError(t, err)
	for range 20 {
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{Servers: []string{srv.Addr()}, MaxInFlight: 4})
		require.NoError(t, err)
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { client.Purge(t.Context(), "k") })
		}
		require.NoError(t, client.Close())
		callers.Wait()
	}
	require.NoError(t, srv.Close())
	testkit.RequireNoGoroutines(t)
}

// A server that ends each connection right after the probe gets a few attempts, and
// then the caller an error.
func TestConnectionsThatEndAtOnceAreAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Cut(mockserver.Cut{Direction: mockserver.ToClient, After: codec.ProbeResponses})
		srv.Disconnect()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := client.Query(ctx, "k")
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.LessOrEqual(t, testkit.ServerStats(client).Dials, uint64(4))
	})
}

func TestALimiterWorksThoughOneRequestMayBeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 1}))
		limiter := throttr.NewRateLimit(client.Backend())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 3 {
			res, err := limiter.Hit(ctx, "k", time.Minute, 2)
			require.NoError(t, err)
			require.Equal(t, i < 2, res.Allowed)
		}
	})
}
