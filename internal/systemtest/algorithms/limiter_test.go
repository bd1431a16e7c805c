package algorithms_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// rate is what a limiter allows.
type rate struct {
	scale time.Duration
	limit uint64
}

func (r rate) String() string { return fmt.Sprintf("%d in %v", r.limit, r.scale) }

// ratesOf returns the rates of the tests of an algorithm.
func ratesOf(algorithm throttr.Algorithm) []rate {
	rates := []rate{
		{time.Second, 100},
		{time.Minute, 1000},
		{7 * time.Second, 3}, // not a whole number of nanoseconds per hit
		{time.Hour, 1},
		{time.Millisecond, 7000},
	}
	if algorithm == window.SlidingLog {
		return rates
	}
	return append(rates, rate{time.Millisecond, 7_000_000}) // less than a nanosecond per hit
}

// decision is that of a limiter on a hit.
type decision struct {
	allowed    bool
	retryAfter time.Duration // 0 if allowed
}

// limiter decides on a hit of n, at a time that is not before that of the hit before. Time 0 is a
// multiple of every scale.
type limiter func(at time.Duration, n uint64) decision

// inMemory returns a limiter of package memory. It makes hits and takes in turns: they must be the same.
func inMemory(t *testing.T, algorithm throttr.Algorithm, r rate) limiter {
	t.Helper()
	now := time.Unix(0, 0)
	backend := memory.New(memory.WithClock(func() time.Time { return now }))
	t.Cleanup(func() { backend.Close() })
	limits := testkit.NewRateLimit(backend, throttr.WithAlgorithm(algorithm))
	limit := throttr.Limit{Max: r.limit, Scale: r.scale}
	ways := []func(context.Context, string, throttr.Limit, uint64) (throttr.Result, error){limits.HitN, limits.Take}
	calls := 0
	return func(at time.Duration, n uint64) decision {
		now = time.Unix(0, int64(at))
		calls++
		res, err := ways[calls%len(ways)](t.Context(), "k", limit, n)
		if err != nil { // require takes as long as a hit
			require.NoError(t, err)
		}
		return decision{res.Allowed, res.RetryAfter}
	}
}
