package interop_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// testSharedWindows has four clients hit a key as fast as they can. They are allowed the limit of each window, and leave
// no records.
func testSharedWindows[T codec.Value](t *testing.T, s *suite[T]) {
	const clients, goroutines, hits, limit, scale = 4, 8, 200, 40, time.Second
	key := s.run + "window"
	var allowed atomic.Int64
	var callers sync.WaitGroup
	var backends []*throttr.ServerBackend
	begun := time.Now()
	for range clients {
		backend := testkit.Client[T](t, throttr.Config{Servers: []string{s.addr}}).Backend()
		backends = append(backends, backend)
		limiter := testkit.NewRateLimit(backend)
		for range goroutines {
			callers.Go(func() { // for two scales at least
				for range hits {
					res, err := limiter.Hit(s.ctx, key, scale, limit)
					if err != nil {
						t.Errorf("hit: %v", err)
						return
					}
					if res.Allowed {
						allowed.Add(1)
					}
					time.Sleep(scale / 100)
				}
			})
		}
	}
	callers.Wait()
	require.LessOrEqual(t, allowed.Load(), limit*int64(time.Since(begun)/scale+1), "windows are a scale apart")
	require.GreaterOrEqual(t, allowed.Load(), int64(2*limit), "and the first two are used up")
	time.Sleep(scale + time.Second) // the TTLs of some servers have a unit of a second
	for _, b := range backends {
		require.NoError(t, b.Close())
	}
	for e, err := range s.client.List(s.ctx) {
		require.NoError(t, err)
		require.NotContains(t, e.Key, key)
	}
}
