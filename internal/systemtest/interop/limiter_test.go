package interop_test

import (
	"sync"
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

// limiter returns a limiter with a client of its own, whose clock is skew ahead. At the end of the
// test it resets the windows of keys.
func (s *suite[T]) limiter(t *testing.T, skew, scale time.Duration, keys ...string) (*throttr.RateLimit, *throttr.ServerBackend[T]) {
	t.Helper()
	backend := s.connect(t).Backend(throttr.WithClock(func() time.Time { return time.Now().Add(skew) }))
	limiter := throttr.NewRateLimit(backend)
	t.Cleanup(func() {
		for _, k := range keys {
			if err := limiter.Reset(s.ctx, k, scale); err != nil {
				t.Errorf("reset: %v", err)
			}
		}
	})
	return limiter, backend
}

// awaitRemoval waits until a backend has removed the records of its windows, which end within a
// scale.
func (s *suite[T]) awaitRemoval(t *testing.T, backend *throttr.ServerBackend[T]) {
	t.Helper()
	require.Eventually(t, func() bool { return backend.Stats().Records == 0 },
		10*s.scale()+10*time.Second, 20*time.Millisecond, "records that were not removed")
}

// testWindows fills three windows of one key, one after the other.
func testWindows[T codec.Value](t *testing.T, s *suite[T]) {
	const limit = 3
	k, scale := s.run+"user", s.scale()
	limiter, backend := s.limiter(t, 0, scale, k)
	opened := time.Now()
	for filled := 0; filled < 3; {
		var results [limit + 1]throttr.Result
		for i := range results {
			var err error
			results[i], err = limiter.Hit(s.ctx, k, scale, limit)
			require.NoError(t, err)
		}
		if time.Since(opened) >= scale { // a busy machine: the window may have ended between the hits
			require.NoError(t, limiter.Reset(s.ctx, k, scale))
			opened = time.Now()
			continue
		}
		filled++
		for i, res := range results {
			require.Equal(t, i < limit, res.Allowed)
			require.EqualValues(t, i+1, res.Count)
			require.EqualValues(t, max(0, limit-(i+1)), res.Remaining)
			require.GreaterOrEqual(t, res.ResetAt, opened.Add(scale), "the end of the window")
		}
		res := results[limit]
		require.Positive(t, res.RetryAfter)
		require.LessOrEqual(t, res.RetryAfter, scale)
		for !res.Allowed { // until the hit opens the next window
			time.Sleep(res.RetryAfter)
			opened = time.Now()
			var err error
			res, err = limiter.HitN(s.ctx, k, scale, limit, 0)
			require.NoError(t, err)
		}
	}
	s.awaitRemoval(t, backend)
}

// testSharedWindows counts the hits that are allowed in each window, while four clients, whose
// clocks differ, hit two keys as fast as they can.
func testSharedWindows[T codec.Value](t *testing.T, s *suite[T]) {
	const clients, goroutines, limit, fullWindows = 4, 8, 40, 2
	keys, scale := []string{s.run + "a", s.run + "b"}, s.scale()
	var mu sync.Mutex
	allowed := map[string]map[int64]uint64{keys[0]: {}, keys[1]: {}}
	decided := func(key string, window int64, count, limit uint64) {
		if count <= limit {
			mu.Lock()
			defer mu.Unlock()
			allowed[key][window]++
		}
	}
	enough := func() bool { // windows of each key have reached the limit
		mu.Lock()
		defer mu.Unlock()
		for _, windows := range allowed {
			n := 0
			for _, hits := range windows {
				if hits >= limit {
					n++
				}
			}
			if n < fullWindows {
				return false
			}
		}
		return true
	}
	start, end := time.Now(), time.Now().Add(20*scale+10*time.Second)
	var callers sync.WaitGroup
	var backends []*throttr.ServerBackend[T]
	for c := range clients {
		_, backend := s.limiter(t, time.Duration(c)*scale/8, scale, keys...)
		limiter := throttr.NewRateLimit(testkit.Traced(backend, decided))
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
	for key, windows := range allowed {
		for window, n := range windows {
			require.LessOrEqual(t, n, uint64(limit), "%s: hits allowed in window %d", key, window)
		}
		require.LessOrEqual(t, len(windows), int(elapsed/scale)+1, "%s: windows overlap", key)
	}
	for _, b := range backends {
		s.awaitRemoval(t, b)
	}
}

func testSetAndReset[T codec.Value](t *testing.T, s *suite[T]) {
	const scale, limit = 20 * time.Second, 10
	k := s.run + "user"
	first, _ := s.limiter(t, 0, scale)
	second, _ := s.limiter(t, 0, scale, k)

	n, err := first.Get(s.ctx, k, scale)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = first.Inc(s.ctx, k, scale, 3)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	n, err = second.Get(s.ctx, k, scale)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	end, err := second.ExpiresAt(s.ctx, k, scale)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(scale), end, 5*time.Second)

	n, err = second.Set(s.ctx, k, scale, 9)
	require.NoError(t, err)
	require.EqualValues(t, 9, n)
	res, err := first.Hit(s.ctx, k, scale, limit)
	require.NoError(t, err)
	require.True(t, res.Allowed)
	require.EqualValues(t, 10, res.Count)
	res, err = second.Hit(s.ctx, k, scale, limit)
	require.NoError(t, err)
	require.False(t, res.Allowed)

	require.NoError(t, first.Reset(s.ctx, k, scale))
	n, err = second.Get(s.ctx, k, scale)
	require.NoError(t, err)
	require.Zero(t, n)
	res, err = first.HitN(s.ctx, k, scale, limit, 4)
	require.NoError(t, err)
	require.EqualValues(t, 4, res.Count)
}
