package throttr_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// tenIn10s is a limit of the default algorithm.
var tenIn10s = throttr.Limit{Max: 10, Scale: 10 * time.Second}

// forEachRolling calls f in virtual time for each rolling algorithm, with a limiter in memory. It begins at a
// multiple of an hour.
func forEachRolling(t *testing.T, f func(t *testing.T, a throttr.Algorithm, limiter *throttr.RateLimit)) {
	t.Helper()
	for _, a := range []throttr.Algorithm{throttr.TokenBucket, throttr.SlidingWindow, throttr.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, limiter *throttr.RateLimit) {
				now := time.Now()
				time.Sleep(now.Truncate(time.Hour).Add(time.Hour).Sub(now))
				f(t, a, limiter)
			}, throttr.WithAlgorithm(a))
		})
	}
}

// What counts without a Max is unsupported.
func TestRollingCallsNeedAMax(t *testing.T) {
	forEachRolling(t, func(t *testing.T, _ throttr.Algorithm, limiter *throttr.RateLimit) {
		for call, err := range everyCallOfAScale(t.Context(), limiter, time.Minute) {
			if call == "Hit" || call == "Reset" {
				require.NoError(t, err, call)
				continue
			}
			require.ErrorIs(t, err, throttr.ErrUnsupported, call)
		}
	})
}

func TestRollingWaits(t *testing.T) {
	forEachRolling(t, func(t *testing.T, a throttr.Algorithm, limiter *throttr.RateLimit) {
		_, err := limiter.HitN(t.Context(), "k", tenIn10s, 10)
		require.NoError(t, err)
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		var all sync.WaitGroup
		var mu sync.Mutex
		var waited []time.Duration
		for i := range 10 {
			time.Sleep(time.Millisecond)
			all.Go(func() {
				_, err := limiter.Wait(ctx, "k", tenIn10s, uint64(1+i%2))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				waited = append(waited, time.Since(begun))
			})
		}
		all.Wait()
		want := map[throttr.Algorithm]int{throttr.TokenBucket: 10, throttr.SlidingWindow: 6, throttr.SlidingLog: 8}
		require.GreaterOrEqual(t, len(waited), want[a], waited)
		if a == throttr.TokenBucket {
			at := time.Duration(0)
			for i, got := range waited { // one second for each token, and the jitter
				at += time.Duration(1+i%2) * time.Second
				require.InDelta(t, at, got, float64(150*time.Millisecond), "caller %d", i)
			}
		}
	})
}
