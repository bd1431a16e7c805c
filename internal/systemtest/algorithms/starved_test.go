package algorithms_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

// starves returns an error if a caller that was refused, and waits for exactly as long as it was told,
// is refused again, or if it need not have waited for as long.
// All patterns and rates together make so many hits.
func starves(rates []rate, hits int, start func(rate) limiter) error {
	random := rand.New(rand.NewPCG(7, 8))
	for _, p := range patterns {
		for _, r := range rates {
			l, next := start(r), p.start(random, r)
			now, last := time.Duration(0), decision{allowed: true}
			for range hits / len(patterns) / len(rates) {
				pause, n := next(now, last)
				now = max(now, now+pause) // it has waited past its own next time
				if last = l(now, n); last.allowed {
					continue
				}
				if last.retryAfter <= 0 || last.retryAfter > 2*r.scale {
					return fmt.Errorf("%s: %v: at %v, RetryAfter is %v", p.name, r, now, last.retryAfter)
				}
				if last.retryAfter > 1 && random.IntN(4) == 0 {
					if early := l(now+last.retryAfter-1, n); early.allowed {
						return fmt.Errorf("%s: %v: at %v, RetryAfter is %v, which is too long", p.name, r, now, last.retryAfter)
					}
				}
				now += last.retryAfter
				if again := l(now, n); !again.allowed {
					return fmt.Errorf("%s: %v: at %v, after RetryAfter of %v, the hit was refused again", p.name, r, now, last.retryAfter)
				}
				last = decision{allowed: true}
			}
		}
	}
	return nil
}

// TestCallerThatWaitsForRetryAfterIsAllowed also tries a nanosecond earlier, which is too early.
//
//evidence:limits With each algorithm, a caller that waits for RetryAfter is allowed, and a nanosecond less is not enough
func TestCallerThatWaitsForRetryAfterIsAllowed(t *testing.T) {
	for _, algorithm := range algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, starves(ratesOf(algorithm), hitsOf(1), func(r rate) limiter { return inMemory(t, algorithm, r) }))
		})
	}
}

func TestWrongRetryAfterIsFound(t *testing.T) {
	for algorithm, start := range references {
		require.NoError(t, starves(ratesOf(algorithm), hitsOf(1), start), "%v", algorithm)
		for _, wrong := range []time.Duration{-1, 1} {
			require.Error(t, starves(ratesOf(algorithm), hitsOf(1), func(r rate) limiter {
				l := start(r)
				return func(at time.Duration, n uint64) decision {
					d := l(at, n)
					if !d.allowed {
						d.retryAfter += wrong
					}
					return d
				}
			}), "%v, wrong by %v", algorithm, wrong)
		}
	}
}

// TestNothingIsWasted compares how many hits are allowed with the reference limiters: refusing
// everything would keep every bound.
//
//evidence:limits Each algorithm allows as many hits as its definition, to one in a million
func TestNothingIsWasted(t *testing.T) {
	for _, algorithm := range []throttr.Algorithm{window.TokenBucket, throttr.SlidingWindow, window.SlidingLog} {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			rates := ratesOf(algorithm)
			for _, p := range patterns {
				for _, r := range rates {
					calls := hitsOf(len(patterns) * len(rates))
					got := len(call(inMemory(t, algorithm, r), p.start(rand.New(rand.NewPCG(9, 10)), r), calls))
					want := len(call(references[algorithm](r), p.start(rand.New(rand.NewPCG(9, 10)), r), calls))
					require.InEpsilon(t, want, got, 1e-6, "%s, %v", p.name, r)
				}
			}
		})
	}
}
