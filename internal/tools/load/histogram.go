package load

import (
	"encoding/json"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest duration that a histogram tells from longer ones.
const longest = time.Hour

// Histogram counts durations. Its quantiles are exact to a hundredth, and its size does not depend
// on the number of durations. The zero value is empty.
type Histogram struct{ counts *hdrhistogram.Histogram }

// made returns the counts, and makes them if there are none.
func (h *Histogram) made() *hdrhistogram.Histogram {
	if h.counts == nil {
		h.counts = hdrhistogram.New(1, int64(longest), 2)
	}
	return h.counts
}

// Add counts a duration n times.
func (h *Histogram) Add(d time.Duration, n uint64) {
	h.made().RecordValues(int64(min(max(d, 0), longest)), int64(n)) // fails only out of this range
}

// Merge adds the durations of o.
func (h *Histogram) Merge(o *Histogram) { h.made().Merge(o.made()) }

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return uint64(h.made().TotalCount()) }

// Quantile returns the shortest duration that a share of q of all durations does not exceed, or 0
// if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.made().ValueAtPercentile(100 * q))
}

// MarshalJSON returns the histogram for UnmarshalJSON.
func (h *Histogram) MarshalJSON() ([]byte, error) { return json.Marshal(h.made().Export()) }

// UnmarshalJSON is the reverse of MarshalJSON.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var s hdrhistogram.Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	h.counts = hdrhistogram.Import(&s)
	return nil
}
