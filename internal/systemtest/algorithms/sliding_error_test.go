package algorithms_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/intervals"
	"github.com/throttr-go/throttr/window"
)

// TestSlidingIsCloseToAnExactLog measures the error of Sliding, for hits at random times: by how much
// what it allows in the long run differs from what an exact log allows; how many decisions are not
// those of an exact log of what Sliding itself has allowed; and the most that it allows in any
// interval of a scale. docs/algorithms.md has the figures.
//
//evidence:limits Sliding windows allow as many random hits as an exact log, to 1 %
func TestSlidingIsCloseToAnExactLog(t *testing.T) {
	for _, r := range []rate{{time.Minute, 10}, {time.Minute, 100}, {time.Minute, 1000}} {
		for _, demand := range []float64{0.5, 0.8, 1, 1.25, 2, 5} {
			random := func() caller { return atRandom(rand.New(rand.NewPCG(11, 12)), r, demand) }
			hits := hitsOf(20)
			exact := call(newReferenceLog(r), random(), hits)

			own, wrong := referenceLog{rate: r}, 0
			sliding := inMemory(t, window.Sliding, r)
			allowed := call(func(at time.Duration, n uint64) decision {
				d := sliding(at, n)
				own.forget(at)
				if d.allowed != (own.sum+n <= r.limit) {
					wrong++
				}
				if d.allowed {
					own.hits, own.sum = append(own.hits, intervals.Hit{At: at, N: n}), own.sum+n
				}
				return d
			}, random(), hits)

			differs := float64(len(allowed))/float64(len(exact)) - 1
			t.Logf("%4d in %v, demand %.0f %%: allows %+.2f %% of what an exact log does; %.2f %% of the decisions differ; at most %d in a scale",
				r.limit, r.scale, 100*demand, 100*differs, 100*float64(wrong)/float64(hits), intervals.Busiest(allowed, r.scale).Hits)
			if r.limit >= 100 {
				require.Less(t, math.Abs(differs), 0.01)
			}
		}
	}
}
