package algorithms_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// slidingError is how far Sliding is from an exact log.
type slidingError struct {
	allowed float64 // how much more it allows than a log that gets the same hits, in %
	count   float64 // by how much its count is wrong on average, in % of the limit
	differs float64 // decisions that are not those of a log of what it has allowed itself, in %
	most    uint64  // hits in any interval of a scale
}

// slidingErrorOf measures with hits at random times, demand·limit in a scale on average.
func slidingErrorOf(t *testing.T, r rate, demand float64, hits int) (e slidingError) {
	random := func() caller { return atRandom(rand.New(rand.NewPCG(11, 12)), r, demand) }
	exact := call(newReferenceLog(r), random(), hits)
	own := referenceLog{rate: r}
	sliding := inMemory(t, throttr.SlidingWindow, r)
	allowed := call(func(at time.Duration, n uint64) decision {
		own.forget(at)
		fits := own.sum+n <= r.limit
		d := sliding(at, n)
		if d.allowed != fits {
			e.differs++
		}
		if d.allowed {
			own.hits, own.sum = append(own.hits, allowedHit{At: at, N: n}), own.sum+n
		}
		e.count += math.Abs(float64(d.count) - float64(own.sum))
		return d
	}, random(), hits)
	e.allowed = 100 * (float64(len(allowed))/float64(len(exact)) - 1)
	e.count *= 100 / float64(hits) / float64(r.limit)
	e.differs *= 100 / float64(hits)
	e.most = busiestInterval(allowed, r.scale).Hits
	return e
}

// TestSlidingIsCloseToAnExactLog measures the error of Sliding. docs/algorithms.md has the figures.
func TestSlidingIsCloseToAnExactLog(t *testing.T) {
	hits := hitsOf(5)
	for _, limit := range []uint64{10, 100, 1000} {
		for _, demand := range []float64{0.5, 0.8, 1, 1.25, 2, 5} {
			e := slidingErrorOf(t, rate{time.Minute, limit}, demand, hits)
			t.Logf("| %d | %.0f %% | %+.1f %% | %.1f %% | %.1f %% | %d |", limit, 100*demand, e.allowed, e.count, e.differs, e.most)
			if limit >= 100 && hits >= 100_000 { // fewer show how it begins
				require.Less(t, math.Abs(e.allowed), 1.5)
				require.Less(t, e.count, 3.0)
			}
		}
	}
}
