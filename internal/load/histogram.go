package load

import (
	"encoding/json"
	"fmt"
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

// Histogram counts values, such as durations in nanoseconds. Its quantiles are exact to 1/64, and its
// size does not depend on the number of values.
type Histogram struct {
	counts [buckets]uint64
	count  uint64
	max    uint64
}

// Add counts v n times.
func (h *Histogram) Add(v, n uint64) {
	if n == 0 {
		return
	}
	h.counts[bucket(v)] += n
	h.count += n
	h.max = max(h.max, v)
}

// Merge adds the values of o.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.count += o.count
	h.max = max(h.max, o.max)
}

// Quantile returns the smallest value that a share of q of all values does not exceed, or 0 if
// there are no values.
func (h *Histogram) Quantile(q float64) time.Duration {
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

// MarshalJSON returns the counts of buckets that have values, and the largest value.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	e := encodedHistogram{Counts: map[int]uint64{}, Max: h.max}
	for i, n := range h.counts {
		if n > 0 {
			e.Counts[i] = n
		}
	}
	return json.Marshal(e)
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var e encodedHistogram
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	*h = Histogram{max: e.Max}
	for i, n := range e.Counts {
		if i < 0 || i >= buckets {
			return fmt.Errorf("load: a histogram has bucket %d of %d", i, buckets)
		}
		h.counts[i] = n
		h.count += n
	}
	return nil
}

type encodedHistogram struct {
	Counts map[int]uint64 `json:"counts"` // by bucket
	Max    uint64         `json:"max"`
}
