package load

import (
	"math"
	"math/bits"
	"time"
)

const (
	// parts is the number of buckets between a power of two and the next. The middle of a
	// bucket differs from its values by 1/(2*parts) at most.
	parts = 32
	// longest is the largest value with a bucket of its own, over an hour in nanoseconds.
	longest = 1<<42 - 1
	// buckets is one more than the bucket of longest.
	buckets = (42-6)*parts + 2*parts
)

// histogram counts values. Its quantiles are exact to 1/64, and its size does not depend on the
// number of values.
type histogram struct {
	counts [buckets]uint64
	count  uint64
	max    uint64
}

// add counts v n times.
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

// quantile returns the smallest value that a share of q of all values does not exceed, or 0 if
// there are no values.
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

// bucket returns the bucket of v. Each value below 2*parts has its own.
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
