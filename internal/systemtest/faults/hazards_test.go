package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

// A reset before the first response kills a server (H15). RunT fails for one.
func TestNothingIsResetBeforeTheServerHasAcceptedIt(t *testing.T) {
	const patience = 300 * time.Millisecond // enough to connect on a busy machine
	type client = throttr.Client[uint16]
	for name, use := range map[string]func(ctx context.Context, c *client){
		"request":      func(ctx context.Context, c *client) { c.Query(ctx, "k") },
		"listing":      func(ctx context.Context, c *client) { testkit.Collect(t, c.List(ctx)) },
		"subscription": func(ctx context.Context, c *client) { c.Subscribe(ctx, "c") },
		"hit":          func(ctx context.Context, c *client) { throttr.NewRateLimit(c.Backend()).Hit(ctx, "k", time.Minute, 5) },
	} {
		for step, end := range map[string]func(cancel func(), c *client){
			"cancel":  func(cancel func(), _ *client) { cancel() },
			"close":   func(_ func(), c *client) { c.Close() },
			"timeout": func(func(), *client) { time.Sleep(patience + 10*time.Millisecond) },
		} {
			t.Run(name+"/"+step, func(t *testing.T) {
				t.Parallel() // they mostly wait
				srv := mockserver.RunT(t)
				client := testkit.Connect[uint16](t, srv, throttr.Config{
					MaxConns: 2, ConnectTimeout: patience, StallTimeout: patience, MinBackoff: time.Hour, MaxBackoff: time.Hour,
				})
				srv.HoldAccept(true)
				if name == "request" {
					srv.Disconnect() // so that it needs another connection
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var using sync.WaitGroup
				for range 3 {
					using.Go(func() { use(ctx, client) })
				}
				time.Sleep(20 * time.Millisecond)
				end(cancel, client)
				cancel()
				using.Wait()
				client.Close()
				srv.HoldAccept(false)
				require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
			})
		}
	}
}

// What a server can't send keeps its memory for good (H16).
func TestNoResponseIsLeftUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in real time, a busy machine may need more than there is for what is due
		srv := testkit.InMemory(t, mockserver.WithServiceTime(20*time.Microsecond))
		for round := range 5 {
			cfg := testkit.Over(srv, throttr.Config{MaxConns: 4, MaxConnAge: 20 * time.Millisecond, HealthInterval: 5 * time.Millisecond})
			client := testkit.Connect[uint16](t, srv, cfg)
			limiter := throttr.NewRateLimit(client.Backend())
			sub, err := client.Subscribe(t.Context(), pubsub.All)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var users sync.WaitGroup
			for i := range 20 {
				users.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						key := fmt.Sprint(round, i, n%20)
						short, end := context.WithTimeout(ctx, time.Duration(1+n%7)*100*time.Microsecond)
						limiter.Hit(short, key, time.Minute, 1000)
						client.Query(short, key)
						client.Publish(short, pubsub.All, []byte("x"))
						for range client.List(short) {
							break
						}
						end()
						time.Sleep(time.Microsecond) // a closed client fails at once
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			if round%2 == 0 {
				cancel()
				users.Wait()
			}
			require.NoError(t, client.Close(), "with requests in flight, in every other round")
			cancel()
			users.Wait()
			for err == nil {
				_, err = sub.Next(t.Context())
			}
			require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
			require.Zero(t, srv.Leaked())
		}
	})
}

// A server that has just been started is killed by load (H17): RunT fails for it.
func TestAServerThatStartsIsSparedLoad(t *testing.T) {
	for _, parking := range []throttr.Parking{throttr.ParkingAutomatic, throttr.ParkingAlways, throttr.ParkingNever} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithHazard(mockserver.StartUp, true))
			time.Sleep(time.Second)
			var clients []*throttr.Client[uint16]
			for range 5 {
				clients = append(clients, testkit.Connect[uint16](t, srv, throttr.Config{Parking: parking, Dial: refusing(srv)}))
			}
			var users sync.WaitGroup
			var recovered atomic.Int64 // when the last client was served again, after the restart
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			var started time.Time
			for c, client := range clients {
				limiter := testkit.NewRateLimit(client.Backend())
				client.Subscribe(ctx, "c")
				for i := range max(2, testkit.Fewer(10)) {
					users.Go(func() {
						for away := false; ctx.Err() == nil; time.Sleep(3 * time.Millisecond) {
							_, err := limiter.Hit(ctx, fmt.Sprint(c, i), time.Minute, 1<<15)
							if away && err == nil {
								recovered.Store(max(recovered.Load(), int64(time.Since(started))))
							}
							away = err != nil
							if i == 0 {
								for range client.List(ctx) {
								}
							}
						}
					})
				}
			}
			for range 2 {
				time.Sleep(time.Second)
				srv.Refuse(true)
				srv.Disconnect()
				time.Sleep(700 * time.Millisecond)
				srv.Refuse(false)
				started = time.Now()
				require.NoError(t, srv.Restart(false))
			}
			users.Wait()
			require.LessOrEqual(t, time.Duration(recovered.Load()), 203*time.Millisecond, "of the start, and the pause between hits")
		})
	}
}

// refusing returns a Dial that fails as that of a port on which nobody listens.
func refusing(srv *mockserver.Server) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		if errors.Is(err, mockserver.ErrRefused) {
			err = syscall.ECONNREFUSED
		}
		return nc, err
	}
}

// A record whose TTL is longer than that of any window of that scale must be the response to another
// request. No hit is decided by it, and the connection ends.
func TestImpossibleTTLEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bands, _ := slot.BandsFor(time.Minute, math.MaxUint16)
		srv, client := testkit.Start[uint16](t, throttr.Config{MaxConns: 1, MaxRetries: -1})
		limiter := testkit.NewRateLimit(client.Backend())
		testkit.Hits(t, limiter, 1, "k", time.Minute, 5)
		time.Sleep(time.Second) // for the sweeper, which also makes QUERYs
		ttl := codec.TTL[uint16]{Amount: uint16(bands.Top) + 1, Unit: codec.Seconds}
		other := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: 3, TTL: ttl})
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: other})
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
		require.ErrorIs(t, err, throttr.ErrProtocol)
		synctest.Wait() // the pool learns of the end after the call
		require.EqualValues(t, 1, client.Stats().Servers[0].Failures)
		require.Positive(t, testkit.Hits(t, limiter, 1, "k", time.Minute, 5), "on another connection")
	})
}
