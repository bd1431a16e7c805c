package transport_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func TestAServerThatIsDownIsLeftAloneForAGrowingPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, g := behindGate(t, throttr.Config{RetryPause: 100 * time.Millisecond, MaxRetryPause: 2 * time.Second})
		g.Fail.Store(true)
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, testkit.ErrGate, "the first caller finds out")
		require.NotErrorIs(t, err, throttr.ErrUnavailable)
		dials := testkit.ServerStats(client).Dials

		start := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				for range 100 {
					_, err := client.Purge(t.Context(), "k")
					if !throttr.SafeToRetry(err) {
						t.Errorf("PURGE: %v", err)
					}
				}
			})
		}
		callers.Wait()
		require.Zero(t, time.Since(start), "nobody else waits")
		require.Equal(t, dials, testkit.ServerStats(client).Dials, "and nobody else tries")
		_, err = client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.ErrorIs(t, err, testkit.ErrGate)

		time.Sleep(20 * time.Second)
		tries := testkit.ServerStats(client).Dials - dials
		require.GreaterOrEqual(t, tries, uint64(4+7), "0.1, 0.3, 0.7, 1.5 s, then every 2 s")
		require.LessOrEqual(t, tries, uint64(4+12))

		g.Fail.Store(false)
		time.Sleep(2200 * time.Millisecond)
		_, err = client.Purge(t.Context(), "k")
		require.NoError(t, err, "the client has tried again by itself")
	})
}

func TestAServerThatIsDownDoesNotAffectTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := map[string]*mockserver.Server{}
		cfg := throttr.Config{Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			return servers[address].Dial(ctx)
		}}
		for i := range 3 {
			address := fmt.Sprintf("server:%d", i)
			servers[address] = mockserver.RunT(t, mockserver.WithAddr("memory", address))
			cfg.Servers = append(cfg.Servers, address)
		}
		client, err := throttr.Connect[uint16](t.Context(), cfg)
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, servers["server:1"].Close())
		failed := map[string]int{}
		for i := range 300 {
			_, err := client.Purge(t.Context(), fmt.Sprint(i))
			if err != nil {
				var re *throttr.RequestError
				require.ErrorAs(t, err, &re)
				failed[re.Server]++
			}
		}
		require.Len(t, failed, 1)
		require.Greater(t, failed["server:1"], 50)
	})
}

func TestPausesAreBounded(t *testing.T) {
	for _, c := range []struct {
		pause, most time.Duration
		tries       [2]int // in 10 s
	}{
		{time.Hour, time.Second, [2]int{9, 11}},
		{1<<63 - 1, time.Second, [2]int{9, 11}},
		{time.Second, 1<<63 - 1, [2]int{3, 3}},    // 1, 3, 7 s
		{1<<63 - 1, 1<<63 - 1, [2]int{0, 0}},      // for ever
		{time.Second, time.Second, [2]int{9, 11}}, // always the same
	} {
		synctest.Test(t, func(t *testing.T) {
			client, g := behindGate(t, throttr.Config{RetryPause: c.pause, MaxRetryPause: c.most})
			g.Fail.Store(true)
			_, err := client.Purge(t.Context(), "k")
			require.Error(t, err)
			dials := testkit.ServerStats(client).Dials
			time.Sleep(10 * time.Second)
			tries := int(testkit.ServerStats(client).Dials - dials)
			require.GreaterOrEqual(t, tries, c.tries[0], "%v up to %v", c.pause, c.most)
			require.LessOrEqual(t, tries, c.tries[1], "%v up to %v", c.pause, c.most)
		})
	}
}

// A server that takes no further connections is of use by those it has.
func TestAServerThatTakesNoMoreConnectionsServesByThoseItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &testkit.Gate{Server: testkit.InMemory(t)}
		client := testkit.Connect[uint16](t, g.Server, throttr.Config{
			Dial: g.Dial, MaxConns: 3, MaxInFlight: 4, RetryPause: time.Second, MaxRetryPause: time.Second,
		})
		g.Server.Inject(mockserver.Fault{Delay: time.Millisecond})
		g.Fail.Store(true)
		load := func() {
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() {
					for range 20 {
						if _, err := client.Purge(t.Context(), "k"); err != nil {
							t.Errorf("PURGE: %v", err)
						}
					}
				})
			}
			callers.Wait()
		}
		load()
		require.EqualValues(t, 2, testkit.ServerStats(client).Dials, "one try for more")
		require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
		require.Equal(t, 1, g.Server.Conns())
		g.Fail.Store(false)
		time.Sleep(time.Second)
		load()
		require.Equal(t, 3, g.Server.Conns(), "no more than MaxConns")
		require.Equal(t, 3, testkit.ServerStats(client).Conns)
		require.EqualValues(t, 4, testkit.ServerStats(client).Dials)
	})
}

// One that comes and goes is tried by one at a time, and never has too many connections.
func TestAServerThatComesAndGoesIsTriedByOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &testkit.Gate{Server: testkit.InMemory(t)}
		var dialing, most atomic.Int64
		client := testkit.Connect[uint16](t, g.Server, throttr.Config{
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				most.Store(max(most.Load(), dialing.Add(1)))
				defer dialing.Add(-1)
				time.Sleep(3 * time.Millisecond)
				return g.Dial(ctx, network, address)
			},
			MaxConns: 2, MaxInFlight: 4, RetryPause: 5 * time.Millisecond, MaxRetryPause: 20 * time.Millisecond,
		})
		g.Server.Inject(mockserver.Fault{Delay: time.Millisecond})
		var callers sync.WaitGroup
		var served atomic.Int64
		end := time.Now().Add(5 * time.Second)
		for range 20 {
			callers.Go(func() {
				for time.Now().Before(end) {
					if _, _, err := client.Query(t.Context(), "k"); err == nil {
						served.Add(1)
					} else if !errors.Is(err, throttr.ErrConnect) && !errors.Is(err, throttr.ErrUnavailable) && !errors.Is(err, throttr.ErrConnLost) {
						t.Errorf("QUERY: %v", err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		for time.Now().Before(end) {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			g.Fail.Store(rand.IntN(2) == 0)
			if rand.IntN(2) == 0 {
				g.Server.Disconnect()
			}
			if n := testkit.ServerStats(client).Conns; n > 2 {
				t.Errorf("%d connections", n)
			}
		}
		callers.Wait()
		require.EqualValues(t, 1, most.Load(), "attempts at once")
		require.Positive(t, served.Load())
		g.Fail.Store(false)
		time.Sleep(100 * time.Millisecond)
		_, _, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
	})
}

func TestAServerThatReturnsWithAnotherValueSizeIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		narrow, wide := testkit.InMemory(t), testkit.InMemory(t, mockserver.WithValueSize(4))
		shut := testkit.InMemory(t)
		shut.Refuse(true)
		var now atomic.Pointer[mockserver.Server]
		now.Store(narrow)
		client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return now.Load().Dial(ctx) },
		})
		require.NoError(t, err)
		defer client.Close()
		now.Store(shut)
		narrow.Disconnect()
		synctest.Wait()
		_, err = client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.NotErrorIs(t, err, throttr.ErrValueSizeMismatch)
		before := int(testkit.ServerStats(client).Dials)
		now.Store(wide)
		time.Sleep(time.Minute)
		_, err = client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrUnavailable)
		require.ErrorIs(t, err, throttr.ErrValueSizeMismatch, "why the last try has failed")
		require.True(t, throttr.SafeToRetry(err))
		require.Equal(t, int(testkit.ServerStats(client).Dials)-before, wide.Requests(codec.OpInsert), "nothing but probes")
		require.Zero(t, wide.Conns())
		require.Empty(t, wide.Keys())
		now.Store(narrow)
		time.Sleep(6 * time.Second) // MaxRetryPause
		_, err = client.Purge(t.Context(), "k")
		require.NoError(t, err)
	})
}

// A read that was under way when its server went is not sent again in vain for long.
func TestReadsOfAServerThatHasGoneFailSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &testkit.Gate{Server: testkit.InMemory(t)}
		client := testkit.Connect[uint16](t, g.Server, throttr.Config{Dial: g.Dial, MaxRetries: 100})
		g.Server.Inject(mockserver.Fault{Delay: time.Second})
		var callers sync.WaitGroup
		for range 40 { // one connection does for them
			callers.Go(func() {
				_, _, err := client.Query(t.Context(), "k")
				if !errors.Is(err, testkit.ErrGate) || !errors.Is(err, throttr.ErrConnLost) {
					t.Errorf("QUERY: %v", err)
				}
			})
		}
		synctest.Wait()
		g.Fail.Store(true)
		start := time.Now()
		g.Server.Disconnect()
		callers.Wait()
		require.Zero(t, time.Since(start))
		require.EqualValues(t, 2, testkit.ServerStats(client).Dials, "one try for all")
	})
}

func TestNothingIsLeftOfAClientWhoseServerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the bubble waits for all goroutines
		client, g := behindGate(t, throttr.Config{MaxRetryPause: time.Hour, RetryPause: time.Hour})
		g.Fail.Store(true)
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, testkit.ErrGate)
		start := time.Now()
		require.NoError(t, client.Close())
		_, err = client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrClosed)

		_, err = throttr.Connect[uint16](t.Context(), throttr.Config{Dial: g.Dial})
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.Zero(t, time.Since(start))
	})
}
