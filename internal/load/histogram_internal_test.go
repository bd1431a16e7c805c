package load

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantilesMatchSortedValues(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() uint64{
		"one value": func() uint64 { return 12345 },
		"small":     func() uint64 { return random.Uint64N(64) },
		"uniform":   func() uint64 { return random.Uint64N(1e6) },
		"log":       func() uint64 { return uint64(math.Exp(random.Float64() * 29)) },
		"two modes": func() uint64 { return 900 + random.Uint64N(2)*1e9 },
	} {
		for _, n := range []int{1, 2, 99, 100, 101, 20_000} {
			values := make([]uint64, n)
			var halves [2]Histogram
			for i := range values {
				values[i] = draw()
				halves[i%2].Add(values[i], 1)
			}
			slices.Sort(values)
			h := &halves[0]
			text, err := json.Marshal(&halves[1])
			require.NoError(t, err)
			halves[1] = Histogram{}
			require.NoError(t, json.Unmarshal(text, &halves[1]))
			h.Merge(&halves[1])
			require.EqualValues(t, n, h.count)
			require.Equal(t, values[n-1], h.max)
			for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
				want := float64(values[int(math.Ceil(q*float64(n)))-1])
				require.InDelta(t, want, float64(h.Quantile(q)), want/64, "%s: %v of %d", name, q, n)
			}
		}
	}
}

func TestMiddleOfBucketIsInBucket(t *testing.T) {
	t.Parallel()
	for i := range buckets {
		require.Equal(t, i, bucket(middle(i)))
	}
	require.Equal(t, buckets-1, bucket(longest))
	require.Equal(t, buckets-1, bucket(math.MaxUint64))
	for shift := range 42 {
		edge := uint64(1) << shift
		require.Equal(t, bucket(edge-1)+1, bucket(edge), edge)
	}
}

func TestEmptyHistogramHasQuantileZero(t *testing.T) {
	t.Parallel()
	var h Histogram
	h.Add(5, 0)
	require.Zero(t, h.Quantile(0.5))
	require.Zero(t, h.max)
}

func TestMaxIsExactBeyondLargestBucket(t *testing.T) {
	t.Parallel()
	var h Histogram
	h.Add(uint64(time.Hour), 3)
	require.EqualValues(t, time.Hour, h.max)
	require.LessOrEqual(t, h.Quantile(1), time.Hour)
}

func TestHistogramsWithUnknownBucketsAreErrors(t *testing.T) {
	for _, i := range []int{-1, buckets} {
		require.ErrorContains(t, new(Histogram).UnmarshalJSON(fmt.Appendf(nil, `{"counts":{"%d":1}}`, i)), "a histogram has bucket")
	}
	require.Error(t, new(Histogram).UnmarshalJSON([]byte("[]")))
}
