package load

import (
	"math"
	"math/bits"
	"time"
)

const (
	// parts is in how many parts of equal width a histogram divides what lies between a
	// power of two and the next. The middle of a part is off by 1/(2*parts) at most.
	parts = 32
	// longest is what a histogram can tell apart from longer values, over an hour in
	// nanoseconds.
	longest = 1<<42 - 1
	// buckets is one more than the bucket of longest.
	buckets = (42-6)*parts + 2*parts
)

// histogram counts values, whose quantiles it tells to 1/64. It takes the same memory
// whatever their number.
type histogram struct {
	counts [buckets]uint64
	count  uint64
	max    uint64
}

// add counts n times v.
func (h *histogram) add(v, n uint64) {
	if n == 0 {
		return
	}
	h.counts[bucket(v)] += n
	h.count += n
	h.max = max(h.max, v)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// quantile returns the smallest value that is not exceeded by a share of q, 0 if there is
// none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.count)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return time.Duration(min(middle(i), h.max))
		}
	}
	return 0
}

// bucket returns which bucket v is in: below 2*parts each value has its own.
func bucket(v uint64) int {
	v = min(v, longest)
	shift := max(bits.Len64(v)-6, 0)
	return shift*parts + int(v>>shift)
}

// middle returns the middle of a bucket.
func middle(i int) uint64 {
	if i < 2*parts {
		return uint64(i)
	}
	shift := i/parts - 1
	return uint64(parts+i%parts)<<shift + 1<<shift/2
}
