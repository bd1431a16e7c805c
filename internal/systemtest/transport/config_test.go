package transport_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// What the fields of Config mean is tested where they are used, most of them in internal/pool.
// These tests show that each field arrives there.

// connectBehindGate returns a client whose connection is lost, and the gate to its server.
func connectBehindGate(t *testing.T, cfg throttr.Config) (*throttr.Client[uint16], *testkit.Gate) {
	t.Helper()
	g := &testkit.Gate{Server: testkit.InMemory(t)}
	cfg.Dial = g.Dial
	client := testkit.Connect[uint16](t, g.Server, cfg)
	g.Server.Disconnect()
	synctest.Wait()
	return client, g
}

func TestReadsAreRepeatedMaxRetriesTimes(t *testing.T) {
	for field, sent := range map[int]int{-1: 1, 0: 3, 1: 2, 5: 6} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxRetries: field}))
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true})
			_, _, err := client.Query(t.Context(), "k")
			require.ErrorIs(t, err, throttr.ErrConnLost)
			require.False(t, testkit.SafeToRetry(err))
			require.Equal(t, sent, srv.Requests(codec.OpQuery)-int(testkit.ServerStats(client).Dials), "besides those of the probes")
			require.EqualValues(t, sent-1, testkit.ServerStats(client).Retries)
		})
	}
}

func TestConnectTimeoutBoundsTheMakingOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := connectBehindGate(t, throttr.Config{ConnectTimeout: 7 * time.Second})
		g.Hang.Store(true)
		start := time.Now()
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.True(t, testkit.Timeout(err))
		require.True(t, testkit.SafeToRetry(err))
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

func TestSilentServerIsNoticedAfterStallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: 20 * time.Second}))
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Drop: true})
		start := time.Now()
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrStalled)
		require.True(t, testkit.Timeout(err))
		require.False(t, testkit.SafeToRetry(err))
		require.InDelta(t, 22.5, time.Since(start).Seconds(), 2.5, "up to a quarter later")
	})
}

func TestMaxConnIdleAndMaxConnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			MaxConns: 2, MaxInFlight: 2, MaxConnIdle: time.Minute, MaxConnAge: time.Hour, HealthInterval: time.Second,
		}))
		remove := srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		done := make(chan error)
		for range 10 {
			go func() {
				_, _, err := client.Query(t.Context(), "k")
				done <- err
			}()
		}
		for range 10 {
			require.NoError(t, <-done)
		}
		remove()
		require.Equal(t, 2, srv.Conns())
		time.Sleep(59 * time.Second)
		require.Equal(t, 2, srv.Conns())
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, srv.Conns())

		time.Sleep(58 * time.Minute)
		require.EqualValues(t, 2, testkit.ServerStats(client).Dials)
		time.Sleep(2 * time.Minute)
		_, _, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
		require.EqualValues(t, 3, testkit.ServerStats(client).Dials, "the connection was replaced")
	})
}

func TestIdleConnectionsAreCheckedEveryHealthInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{HealthInterval: 10 * time.Second}))
		time.Sleep(55 * time.Second)
		require.Equal(t, 1+2*5, srv.Requests(codec.OpQuery), "that of the probe; then a ping, and a look whether the server is parked")
	})
}

func TestRetryPauseAndMaxBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := connectBehindGate(t, throttr.Config{MinBackoff: 10 * time.Second, MaxBackoff: 40 * time.Second})
		g.Fail.Store(true)
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, testkit.ErrGate)
		before, start := testkit.ServerStats(client).Dials, time.Now()
		for _, c := range []struct {
			seconds  time.Duration // after the failure
			attempts uint64        // at 10, 30, 70 and 110 s, each pause up to a tenth shorter or longer
		}{{8, 0}, {12, 1}, {26, 1}, {34, 2}, {62, 2}, {78, 3}, {98, 3}, {122, 4}} {
			time.Sleep(time.Until(start.Add(c.seconds * time.Second)))
			require.Equal(t, c.attempts, testkit.ServerStats(client).Dials-before, "after %d s", c.seconds)
		}
	})
}
