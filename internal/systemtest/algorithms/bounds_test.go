// Package algorithms_test checks the limits of all algorithms over every interval of time.
package algorithms_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// bound is what an algorithm guarantees for the hits that it has allowed. It returns an error that
// names an interval with more.
type bound func(r rate, allowed []allowedHit) error

// bounds are those of the algorithms.
var bounds = map[throttr.Algorithm]bound{
	throttr.FixedWindow:   inEveryScale(func(limit uint64) uint64 { return 2*limit - 1 }),
	throttr.AlignedWindow: inEveryScale(func(limit uint64) uint64 { return 2 * limit }),
	throttr.SlidingWindow: inEveryScale(func(limit uint64) uint64 { return 2*limit - 1 }),
	window.SlidingLog:     inEveryScale(func(limit uint64) uint64 { return limit }),
	window.TokenBucket:    beyondTheRate,
}

// inEveryScale is a bound on the hits in any interval as long as the scale.
func inEveryScale(most func(limit uint64) uint64) bound {
	return func(r rate, allowed []allowedHit) error {
		if busiest := busiestInterval(allowed, r.scale); busiest.Hits > most(r.limit) {
			return fmt.Errorf("%v: in the %v from %v on, %d hits were allowed", r, r.scale, busiest.From, busiest.Hits)
		}
		return nil
	}
}

// beyondTheRate is the bound of token buckets: in any interval, limit and what refills meanwhile.
func beyondTheRate(r rate, allowed []allowedHit) error {
	if worst := largestBurst(allowed, r.scale, r.limit); worst.Hits > r.limit {
		return fmt.Errorf("%v: in an interval from %v on, %d hits more were allowed than refill in it", r, worst.From, worst.Hits)
	}
	return nil
}

// TestLimitsHoldInEveryInterval makes a million hits with each algorithm, at random times and at the
// worst ones, on a virtual clock. It logs the most that were allowed in any interval of a scale.
func TestLimitsHoldInEveryInterval(t *testing.T) {
	for _, algorithm := range limits.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			var most interval
			var rateOf rate
			var of string
			random, rates := rand.New(rand.NewPCG(3, 4)), ratesOf(algorithm)
			for _, p := range patterns {
				for _, r := range rates {
					allowed := call(inMemory(t, algorithm, r), p.start(random, r), hitsOf(len(patterns)*len(rates)))
					require.NoError(t, bounds[algorithm](r, allowed), p.name)
					busiest := busiestInterval(allowed, r.scale)
					if rateOf.limit == 0 || busiest.Hits*rateOf.limit > most.Hits*r.limit {
						most, rateOf, of = busiest, r, p.name
					}
				}
			}
			t.Logf("at most %d in %v, where the limit is %v (hits %s)", most.Hits, rateOf.scale, rateOf, of)
		})
	}
}

// TestWorstCasesAreReached shows that the bounds of the documents are not too high.
func TestWorstCasesAreReached(t *testing.T) {
	for algorithm, most := range map[throttr.Algorithm]uint64{
		throttr.FixedWindow: 199, throttr.AlignedWindow: 200, throttr.SlidingWindow: 199, window.SlidingLog: 100, window.TokenBucket: 199,
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			worst, random := uint64(0), rand.New(rand.NewPCG(5, 6))
			for _, p := range patterns {
				r := rate{time.Second, 100}
				allowed := call(inMemory(t, algorithm, r), p.start(random, r), 2000)
				worst = max(worst, busiestInterval(allowed, r.scale).Hits)
			}
			require.Equal(t, most, worst)
		})
	}
}
