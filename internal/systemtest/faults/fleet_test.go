package faults_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
)

// A server restarts, and 200 clients lose their connections at one moment. There is no storm of attempts,
// and all count on the server again within a second of its return.
func TestAFleetAndAServerThatRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const away, second = 10 * time.Second, time.Second
		clients := testkit.Fewer(200)
		srv := testkit.InMemory(t)
		var began atomic.Int64        // when the outage began; 0: not yet
		var attempts [30]atomic.Int64 // of each second since the outage began
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			if at := began.Load(); at != 0 {
				attempts[time.Duration(time.Now().UnixNano()-at)/second].Add(1)
			}
			return srv.Dial(ctx)
		}
		var fleet []*throttr.RateLimit
		for range clients {
			b, err := throttr.OpenServers(t.Context(), throttr.Config{Servers: []string{"a:1"}, Dial: dial})
			require.NoError(t, err)
			defer b.Close()
			fleet = append(fleet, throttr.NewRateLimit(b, throttr.WithPolicy(throttr.AllowHits), throttr.WithLogger(nil)))
		}
		hits := func(limiter *throttr.RateLimit, key string, d time.Duration) (degraded time.Time) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				res, err := limiter.Hit(t.Context(), key, time.Hour, 1000)
				if err != nil {
					t.Error(err)
				}
				if res.Degraded {
					degraded = time.Now()
				}
			}
			return degraded
		}
		var load sync.WaitGroup
		all := func(d time.Duration) (last time.Time) {
			var mu sync.Mutex
			for i, limiter := range fleet {
				load.Go(func() {
					degraded := hits(limiter, fmt.Sprint(i), d)
					mu.Lock()
					defer mu.Unlock()
					if degraded.After(last) {
						last = degraded
					}
				})
			}
			load.Wait()
			return last
		}
		require.Zero(t, all(second))
		began.Store(time.Now().UnixNano())
		srv.Refuse(true)
		srv.Disconnect()
		all(away)
		require.NoError(t, srv.Restart(false))
		srv.Refuse(false)
		back := time.Now()
		last := all(3 * second)
		require.Less(t, last.Sub(back), second, "all count again")
		for i := 2; i < int(away/second); i++ { // the first pauses are shorter
			require.LessOrEqual(t, attempts[i].Load(), int64(clients*5/2), "attempts in second %d of the outage", i)
		}
		require.LessOrEqual(t, attempts[away/second].Load(), int64(clients*25), "connections when it is back")
		t.Logf("%d attempts in the first second, %d in the fifth, %d connections when the server is back; all count after %v",
			attempts[0].Load(), attempts[4].Load(), attempts[away/second].Load(), last.Sub(back))
	})
}
