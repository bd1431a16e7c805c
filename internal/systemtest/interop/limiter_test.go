package interop_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// scale returns the scale of test windows. With values of one byte, TTLs are in whole seconds.
func (s *suite[T]) scale() time.Duration {
	if codec.Size[T]() == 1 {
		return time.Second
	}
	return 500 * time.Millisecond
}

// limiter returns a limiter with a client of its own. At the end of the test it resets the windows of keys.
func (s *suite[T]) limiter(t *testing.T, scale time.Duration, keys ...string) (*throttr.RateLimit, *throttr.ServerBackend) {
	t.Helper()
	backend := s.connect(t).Backend()
	limiter := testkit.NewRateLimit(backend)
	t.Cleanup(func() {
		for _, k := range keys {
			if err := limiter.Reset(s.ctx, k, scale); err != nil && !errors.Is(err, throttr.ErrClosed) {
				t.Errorf("reset: %v", err)
			}
		}
	})
	return limiter, backend
}

// leavesNothing closes backends when their windows are over, and requires that they leave no
// records of a key.
func (s *suite[T]) leavesNothing(t *testing.T, key string, backends ...*throttr.ServerBackend) {
	t.Helper()
	time.Sleep(s.scale() + time.Second) // the TTLs of some servers have a unit of a second
	for _, b := range backends {
		require.NoError(t, b.Close())
	}
	for e, err := range s.client.List(s.ctx) {
		require.NoError(t, err)
		require.NotContains(t, e.Key, key)
	}
}

// testSharedWindows counts the hits that are allowed while four clients hit two keys
// as fast as they can.
func testSharedWindows[T codec.Value](t *testing.T, s *suite[T]) {
	const clients, goroutines, limit, fullWindows = 4, 8, 40, 2
	keys, scale := []string{s.run + "a", s.run + "b"}, s.scale()
	var allowed [2]atomic.Int64 // hits of each key
	enough := func() bool {     // windows of each key have reached the limit
		return allowed[0].Load() >= fullWindows*limit && allowed[1].Load() >= fullWindows*limit
	}
	start, end := time.Now(), time.Now().Add(20*scale+10*time.Second)
	var callers sync.WaitGroup
	var backends []*throttr.ServerBackend
	for range clients {
		limiter, backend := s.limiter(t, scale, keys...)
		backends = append(backends, backend)
		for range goroutines {
			callers.Go(func() {
				for !enough() && time.Now().Before(end) {
					for i, k := range keys {
						res, err := limiter.Hit(s.ctx, k, scale, limit)
						if err != nil {
							t.Errorf("hit: %v", err)
							return
						}
						if res.Allowed {
							allowed[i].Add(1)
						}
					}
					time.Sleep(scale / 100)
				}
			})
		}
	}
	callers.Wait()
	elapsed := time.Since(start)
	require.True(t, enough(), "windows have reached the limit")
	require.GreaterOrEqual(t, elapsed, (fullWindows-1)*scale, "windows are a scale apart")
	for i := range keys {
		require.LessOrEqual(t, allowed[i].Load(), int64(limit*(elapsed/scale+1)), "%s: hits allowed in %v", keys[i], elapsed)
	}
	s.leavesNothing(t, s.run, backends...)
}
