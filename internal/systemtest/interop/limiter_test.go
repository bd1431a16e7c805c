package interop_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/window"
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

// traced is a backend that calls decided with the count of each hit.
type traced struct {
	throttr.Backend
	decided func(key string, count uint64)
}

func (b traced) Hit(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	w, err := b.Backend.Hit(ctx, key, l, n)
	if err == nil {
		b.decided(key, w.Count)
	}
	return w, err
}

// testSharedWindows counts the hits that are allowed while four clients hit two keys
// as fast as they can.
func testSharedWindows[T codec.Value](t *testing.T, s *suite[T]) {
	const clients, goroutines, limit, fullWindows = 4, 8, 40, 2
	keys, scale := []string{s.run + "a", s.run + "b"}, s.scale()
	var mu sync.Mutex
	allowed := map[string]int{} // hits of each key
	decided := func(key string, count uint64) {
		if count <= limit {
			mu.Lock()
			defer mu.Unlock()
			allowed[key]++
		}
	}
	enough := func() bool { // windows of each key have reached the limit
		mu.Lock()
		defer mu.Unlock()
		return allowed[keys[0]] >= fullWindows*limit && allowed[keys[1]] >= fullWindows*limit
	}
	start, end := time.Now(), time.Now().Add(20*scale+10*time.Second)
	var callers sync.WaitGroup
	var backends []*throttr.ServerBackend
	for range clients {
		_, backend := s.limiter(t, scale, keys...)
		limiter := testkit.NewRateLimit(traced{backend, decided})
		backends = append(backends, backend)
		for range goroutines {
			callers.Go(func() {
				for !enough() && time.Now().Before(end) {
					for _, k := range keys {
						if _, err := limiter.Hit(s.ctx, k, scale, limit); err != nil {
							t.Errorf("hit: %v", err)
							return
						}
					}
					time.Sleep(scale / 100)
				}
			})
		}
	}
	callers.Wait()
	elapsed := time.Since(start)
	require.True(t, enough(), "windows that reached the limit: %v", allowed)
	require.GreaterOrEqual(t, elapsed, (fullWindows-1)*scale, "windows are a scale apart")
	for key, n := range allowed {
		require.LessOrEqual(t, n, limit*(int(elapsed/scale)+1), "%s: hits allowed in %v", key, elapsed)
	}
	s.leavesNothing(t, s.run, backends...)
}
