package algorithms_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// A caller that is refused waits for exactly as long as it was told, and is allowed then. A nanosecond
// earlier is too early.
func TestCallerThatWaitsForRetryAfterIsAllowed(t *testing.T) {
	for _, algorithm := range limits.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			random, rates := rand.New(rand.NewPCG(7, 8)), ratesOf(algorithm)
			for _, p := range patterns {
				for _, r := range rates {
					waitAndHit(t, inMemory(t, algorithm, r), p.start(random, r), r, random, hitsOf(len(patterns)*len(rates)))
				}
			}
		})
	}
}

// waitAndHit makes so many hits. After each that is refused, it waits and tries again.
func waitAndHit(t *testing.T, l limiter, next caller, r rate, random *rand.Rand, hits int) {
	now, last := time.Duration(0), decision{allowed: true}
	for range hits {
		pause, n := next(now, last)
		now = max(now, now+pause) // it has waited past its own next time
		if last = l(now, n); last.allowed {
			continue
		}
		wait := last.retryAfter
		if wait <= 0 || wait > 2*r.scale {
			t.Fatalf("%v: at %v, RetryAfter is %v", r, now, wait)
		}
		if wait > 1 && random.IntN(4) == 0 && l(now+wait-1, n).allowed {
			t.Fatalf("%v: at %v, RetryAfter is %v, which is too long", r, now, wait)
		}
		now += wait
		if !l(now, n).allowed {
			t.Fatalf("%v: at %v, after RetryAfter of %v, the hit was refused again", r, now, wait)
		}
		last = decision{allowed: true}
	}
}

// TestNothingIsWasted compares how many hits are allowed with the reference limiters: refusing
// everything would keep every bound.
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
