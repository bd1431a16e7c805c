package transport_test

import (
	"context"
	"errors"
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

func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	for _, timeout := range []time.Duration{100 * time.Millisecond, 5 * time.Second} {
		// The watchdog may have looked just before.
		for _, before := range []time.Duration{0, timeout / 8, timeout / 4, timeout * 3 / 8} {
			t.Run(fmt.Sprint(timeout, " after ", before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := testkit.InMemory(t)
					client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: timeout}))
					_, _, err := client.Query(t.Context(), "k")
					require.NoError(t, err)
					time.Sleep(before)
					remove := srv.Inject(mockserver.Fault{Drop: true})
					start := time.Now()
					_, err = client.Insert(t.Context(), "k", 1, testkit.Minute)
					took := time.Since(start)
					require.ErrorIs(t, err, throttr.ErrStalled)
					require.True(t, throttr.Timeout(err))
					require.False(t, throttr.SafeToRetry(err))
					require.GreaterOrEqual(t, took, timeout)
					require.LessOrEqual(t, took, timeout*5/4)

					remove()
					_, _, err = client.Query(t.Context(), "k")
					require.NoError(t, err, "on a new connection")
					require.EqualValues(t, 2, testkit.ServerStats(client).Dials)
					require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
				})
			})
		}
	}
}

func TestAStallFailsAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{MaxConns: 1, MaxInFlight: 4, StallTimeout: time.Second})))
		defer srv.Inject(mockserver.Fault{Op: codec.OpPurge, Drop: true})()
		var all sync.WaitGroup
		errs := make([]error, 10)
		for i := range errs {
			all.Go(func() { _, errs[i] = client.Purge(t.Context(), "k") })
		}
		all.Wait()
		safe := 0
		for _, err := range errs {
			require.ErrorIs(t, err, throttr.ErrStalled)
			if throttr.SafeToRetry(err) {
				safe++
			}
		}
		require.Equal(t, 6, safe, "those that were never sent")
	})
}

func TestASlowServerIsNotGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: time.Second}))
		srv.Inject(mockserver.Fault{Delay: 990 * time.Millisecond})
		for range 20 {
			_, _, err := client.Query(t.Context(), "k")
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, testkit.ServerStats(client).Dials)
	})
}

func TestAnIdleConnectionDoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: time.Second, HealthInterval: time.Hour}))
		for range 3 {
			_, _, err := client.Query(t.Context(), "k")
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}
		require.EqualValues(t, 1, testkit.ServerStats(client).Dials)
	})
}

// A server that has locked up takes connections and requests, and answers none (H12).
func TestALockedServerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, err := mockserver.Start(mockserver.WithAddr("memory", "memory:1"), mockserver.WithVirtualClock(),
			mockserver.WithHazard(mockserver.LockUp, true), mockserver.WithHazard(mockserver.LateExpiry, true))
		require.NoError(t, err)
		defer srv.Close()
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, testkit.WithoutRetries(throttr.Config{StallTimeout: time.Second, ConnectTimeout: 2 * time.Second})))
		for i, ttl := range []uint16{1, 30} { // the second postpones the first one's expiry by more than 10 s
			_, err := client.Insert(t.Context(), fmt.Sprint(i), 1, codec.TTL[uint16]{Amount: ttl, Unit: codec.Seconds})
			require.NoError(t, err)
		}
		srv.Advance(time.Minute)
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrStalled)
		require.True(t, srv.LockedUp())

		start := time.Now()
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrConnect, "the probe has no answer")
		require.True(t, throttr.Timeout(err))
		require.True(t, throttr.SafeToRetry(err))
		require.Equal(t, 2*time.Second, time.Since(start))

		require.NoError(t, srv.Restart(false))
		<-time.After(5 * time.Second) // the client tries again by itself
		_, _, err = client.Query(t.Context(), "k")
		require.NoError(t, err)
	})
}

// deaf is a connection whose other end reads nothing after the probe.
type deaf struct {
	net.Conn
	probed bool
	closed chan struct{}
	once   *sync.Once
}

func (d *deaf) Write(p []byte) (int, error) {
	if !d.probed {
		d.probed = true
		return d.Conn.Write(p)
	}
	<-d.closed
	return 0, net.ErrClosed
}

func (d *deaf) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

func TestAServerThatReadsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		cfg := testkit.WithoutRetries(throttr.Config{StallTimeout: time.Second})
		cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := srv.Dial(ctx)
			return &deaf{Conn: nc, closed: make(chan struct{}), once: new(sync.Once)}, err
		}
		client := testkit.Connect[uint16](t, srv, cfg)
		_, err := client.Insert(t.Context(), "k", 1, testkit.Minute)
		require.ErrorIs(t, err, throttr.ErrStalled)
		require.True(t, throttr.SafeToRetry(err), "no byte was taken")
	})
}

func TestADeadlineEndsTheWaitForAStalledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Drop: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := client.Query(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, throttr.ErrStalled)
		require.True(t, throttr.Timeout(err))
		require.Equal(t, time.Second, time.Since(start))
	})
}

// The context ends while a lost request is on its way once more: the error is both.
func TestADeadlineEndsARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		cfg := testkit.Over(srv, throttr.Config{})
		dial, hang := cfg.Dial, false
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if hang {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, address)
		}
		client := testkit.Connect[uint16](t, srv, cfg)
		hang = true
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true, Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, _, err := client.Query(ctx, "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// A stalled read is repeated as often as Config.MaxRetries says, on a new connection
// each time.
func TestAStalledReadIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		srv.Set("k", 5, time.Minute)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{StallTimeout: time.Second, MaxRetries: 1}))
		remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Drop: true, Times: 1})
		c, ok, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, 5, c.Quota)
		remove()
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Drop: true})
		_, _, err = client.Query(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrStalled)
		require.Equal(t, 4, srv.Requests(codec.OpQuery))
		require.EqualValues(t, 2, testkit.ServerStats(client).Retries)
		require.False(t, errors.Is(err, context.DeadlineExceeded))
	})
}
