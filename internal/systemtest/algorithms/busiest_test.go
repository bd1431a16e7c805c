package algorithms_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCheckersAgreeWithTryingAllIntervals compares with sums over every interval that begins and ends
// at a hit.
func TestCheckersAgreeWithTryingAllIntervals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		hits := make([]allowedHit, random.IntN(12))
		at := time.Duration(0)
		for i := range hits {
			at += time.Duration(random.IntN(4) * random.IntN(20))
			hits[i] = allowedHit{At: at, N: random.Uint64N(4)}
		}
		scale, limit := time.Duration(1+random.IntN(50)), random.Uint64N(10)
		require.Equal(t, busiestOf(hits, scale), busiestInterval(hits, scale).Hits, "%v, %v", hits, scale)
		require.Equal(t, burstOf(hits, scale, limit), largestBurst(hits, scale, limit).Hits, "%v, %v, %v", hits, scale, limit)
	}
}

// busiestOf is Busiest by its definition.
func busiestOf(hits []allowedHit, length time.Duration) (most uint64) {
	for i := range hits {
		sum := uint64(0)
		for _, h := range hits[i:] {
			if h.At < hits[i].At+length {
				sum += h.N
			}
		}
		most = max(most, sum)
	}
	return most
}

// burstOf is Burst by its definition, in exact fractions.
func burstOf(hits []allowedHit, scale time.Duration, limit uint64) uint64 {
	worst := new(big.Rat)
	for i := range hits {
		sum := uint64(0)
		for _, h := range hits[i:] {
			sum += h.N
			beyond := big.NewRat(int64(h.At-hits[i].At)*int64(limit), int64(scale))
			if beyond.Sub(big.NewRat(int64(sum), 1), beyond); beyond.Cmp(worst) > 0 {
				worst = beyond
			}
		}
	}
	up := new(big.Int).Add(worst.Num(), worst.Denom())
	up.Sub(up, big.NewInt(1))
	return up.Div(up, worst.Denom()).Uint64()
}

// TestBurstDoesNotOverflow has a pause of years, and then hits.
func TestBurstDoesNotOverflow(t *testing.T) {
	hits := []allowedHit{{0, 5}, {1 << 62, 7}}
	require.Equal(t, interval{From: 1 << 62, Hits: 7}, largestBurst(hits, time.Hour, 1<<40))
}
