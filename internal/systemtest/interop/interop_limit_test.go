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

// scale is a window that a value holds with a margin that lets nothing expire.
func (in *interop[T]) scale() time.Duration {
	if codec.Size[T]() == 1 {
		return time.Second
	}
	return 500 * time.Millisecond
}

// limiter returns a limiter on a connection of its own, whose clock is fast by skew. When
// the test ends, the windows of keys are ended.
func (in *interop[T]) limiter(t *testing.T, skew, scale time.Duration, keys ...string) (*throttr.RateLimit, *throttr.ServerBackend[T]) {
	t.Helper()
	backend := in.connect(t).Backend(throttr.WithClock(func() time.Time { return time.Now().Add(skew) }))
	limiter := throttr.NewRateLimit(backend)
	t.Cleanup(func() {
		for _, k := range keys {
			if err := limiter.Reset(in.ctx, k, scale); err != nil {
				t.Errorf("reset: %v", err)
			}
		}
	})
	return limiter, backend
}

// awaitRemoval waits until a backend has removed the records of its windows, which it
// does soon after their end.
func (in *interop[T]) awaitRemoval(t *testing.T, backend *throttr.ServerBackend[T]) {
	t.Helper()
	require.Eventually(t, func() bool { return backend.Stats().Records == 0 },
		10*in.scale()+10*time.Second, 20*time.Millisecond, "records that are not removed")
}

// interopWindows follows one key through three windows.
func interopWindows[T codec.Value](t *testing.T, in *interop[T]) {
	const limit = 3
	k, scale := in.run+"user", in.scale()
	limiter, backend := in.limiter(t, 0, scale, k)
	opened := time.Now()
	for followed := 0; followed < 3; {
		var results [limit + 1]throttr.Result
		for i := range results {
			var err error
			results[i], err = limiter.Hit(in.ctx, k, scale, limit)
			require.NoError(t, err)
		}
		if time.Since(opened) >= scale { // on a busy machine, the window can have ended in between
			require.NoError(t, limiter.Reset(in.ctx, k, scale))
			opened = time.Now()
			continue
		}
		followed++
		for i, res := range results {
			require.Equal(t, i < limit, res.Allowed)
			require.EqualValues(t, i+1, res.Count)
			require.EqualValues(t, max(0, limit-(i+1)), res.Remaining)
			require.GreaterOrEqual(t, res.ResetAt, opened.Add(scale), "when the window ends")
		}
		res := results[limit]
		require.Positive(t, res.RetryAfter)
		require.LessOrEqual(t, res.RetryAfter, scale)
		for !res.Allowed { // the next hit opens the next window
			<-time.After(res.RetryAfter)
			opened = time.Now()
			var err error
			res, err = limiter.HitN(in.ctx, k, scale, limit, 0)
			require.NoError(t, err)
		}
	}
	in.awaitRemoval(t, backend)
}

// interopSharedWindows has four clients with clocks apart hit two keys as fast as they
// can, and counts what was allowed in each window.
func interopSharedWindows[T codec.Value](t *testing.T, in *interop[T]) {
	const clients, goroutines, limit, full = 4, 8, 40, 2
	keys, scale := []string{in.run + "a", in.run + "b"}, in.scale()
	var mu sync.Mutex
	allowed := map[string]map[int64]uint64{keys[0]: {}, keys[1]: {}}
	decided := func(key string, bucket int64, count, limit uint64) {
		if count <= limit {
			mu.Lock()
			defer mu.Unlock()
			allowed[key][bucket]++
		}
	}
	enough := func() bool { // some windows have been full
		mu.Lock()
		defer mu.Unlock()
		for _, windows := range allowed {
			n := 0
			for _, hits := range windows {
				if hits >= limit {
					n++
				}
			}
			if n < full {
				return false
			}
		}
		return true
	}
	start, end := time.Now(), time.Now().Add(20*scale+10*time.Second)
	var crowd sync.WaitGroup
	var backends []*throttr.ServerBackend[T]
	for c := range clients {
		_, backend := in.limiter(t, time.Duration(c)*scale/8, scale, keys...)
		limiter := throttr.NewRateLimit(testkit.Traced(backend, decided))
		backends = append(backends, backend)
		for range goroutines {
			crowd.Go(func() {
				for !enough() && time.Now().Before(end) {
					for _, k := range keys {
						if _, err := limiter.Hit(in.ctx, k, scale, limit); err != nil {
							t.Errorf("hit: %v", err)
							return
						}
					}
					<-time.After(scale / 100)
				}
			})
		}
	}
	crowd.Wait()
	took := time.Since(start)
	require.True(t, enough(), "windows have been full: %v", allowed)
	require.GreaterOrEqual(t, took, (full-1)*scale, "windows are a scale apart")
	for key, windows := range allowed {
		for bucket, n := range windows {
			require.LessOrEqual(t, n, uint64(limit), "%s: hits allowed in window %d", key, bucket)
		}
		require.LessOrEqual(t, len(windows), int(took/scale)+1, "%s: windows overlap", key)
	}
	for _, b := range backends {
		in.awaitRemoval(t, b)
	}
}

func interopSetAndReset[T codec.Value](t *testing.T, in *interop[T]) {
	const scale, limit = 20 * time.Second, 10
	k := in.run + "user"
	one, _ := in.limiter(t, 0, scale)
	other, _ := in.limiter(t, 0, scale, k)

	n, err := one.Get(in.ctx, k, scale)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = one.Inc(in.ctx, k, scale, 3)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	n, err = other.Get(in.ctx, k, scale)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	end, err := other.ExpiresAt(in.ctx, k, scale)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(scale), end, 5*time.Second)

	n, err = other.Set(in.ctx, k, scale, 9)
	require.NoError(t, err)
	require.EqualValues(t, 9, n)
	res, err := one.Hit(in.ctx, k, scale, limit)
	require.NoError(t, err)
	require.True(t, res.Allowed)
	require.EqualValues(t, 10, res.Count)
	res, err = other.Hit(in.ctx, k, scale, limit)
	require.NoError(t, err)
	require.False(t, res.Allowed)

	require.NoError(t, one.Reset(in.ctx, k, scale))
	n, err = other.Get(in.ctx, k, scale)
	require.NoError(t, err)
	require.Zero(t, n)
	res, err = one.HitN(in.ctx, k, scale, limit, 4)
	require.NoError(t, err)
	require.EqualValues(t, 4, res.Count)
}
