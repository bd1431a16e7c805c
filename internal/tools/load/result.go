package load

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Result is what a measurement found.
type Result struct {
	Operations uint64        `json:"operations"` // that succeeded
	Errors     uint64        `json:"errors"`     // operations that failed; they count nowhere else
	FirstError error         `json:"-"`          // of any goroutine; nil: none
	Elapsed    time.Duration `json:"elapsed_ns"`
	PerSecond  float64       `json:"per_second"` // operations

	// How long operations took, to a hundredth.
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`

	// What the process used, per operation. CPU is user and system time in
	// nanoseconds, 0 if the system does not report it.
	CPUPerOperation    float64 `json:"cpu_ns_per_operation"`
	AllocsPerOperation float64 `json:"allocs_per_operation"`
	BytesPerOperation  float64 `json:"bytes_per_operation"` // allocated
}

// newResult combines what the goroutines have counted. They have ended.
func newResult(meters []*Meter, before, after usage) Result {
	var all Histogram
	var res Result
	for _, m := range meters {
		all.Merge(&m.latencies)
		res.Errors += m.errors
		if res.FirstError == nil {
			res.FirstError = m.firstError
		}
	}
	res.Operations = all.Count()
	res.Elapsed = after.at.Sub(before.at)
	if res.Elapsed > 0 {
		res.PerSecond = float64(res.Operations) / res.Elapsed.Seconds()
	}
	res.P50, res.P99, res.P999, res.Max = all.Quantile(0.5), all.Quantile(0.99), all.Quantile(0.999), all.Quantile(1)
	if n := float64(res.Operations); n > 0 {
		res.CPUPerOperation = float64(after.cpu-before.cpu) / n
		res.AllocsPerOperation = float64(after.allocs-before.allocs) / n
		res.BytesPerOperation = float64(after.bytes-before.bytes) / n
	}
	return res
}

// Failure returns an error if operations failed.
func (r Result) Failure() error {
	if r.Errors == 0 {
		return nil
	}
	return fmt.Errorf("%d operations failed, the first: %w", r.Errors, r.FirstError)
}

// Combine returns one result for several of the same operation: the medians of rates and
// times per operation, and the sums of counts.
func Combine(results []Result) Result {
	median := func(figure func(Result) float64) float64 {
		all := make([]float64, len(results))
		for i, r := range results {
			all[i] = figure(r)
		}
		return Median(all)
	}
	medianTime := func(figure func(Result) time.Duration) time.Duration {
		return time.Duration(median(func(r Result) float64 { return float64(figure(r)) }))
	}
	c := Result{
		PerSecond:          median(func(r Result) float64 { return r.PerSecond }),
		P50:                medianTime(func(r Result) time.Duration { return r.P50 }),
		P99:                medianTime(func(r Result) time.Duration { return r.P99 }),
		P999:               medianTime(func(r Result) time.Duration { return r.P999 }),
		CPUPerOperation:    median(func(r Result) float64 { return r.CPUPerOperation }),
		AllocsPerOperation: median(func(r Result) float64 { return r.AllocsPerOperation }),
		BytesPerOperation:  median(func(r Result) float64 { return r.BytesPerOperation }),
	}
	for _, r := range results {
		c.Operations += r.Operations
		c.Errors += r.Errors
		c.Elapsed += r.Elapsed
		c.Max = max(c.Max, r.Max)
		if c.FirstError == nil {
			c.FirstError = r.FirstError
		}
	}
	return c
}

// Median returns the median, or NaN if there are no values.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	values = slices.Sorted(slices.Values(values))
	return (values[(n-1)/2] + values[n/2]) / 2
}

// FormatDuration formats a duration with about three digits.
func FormatDuration(d time.Duration) string {
	for unit := time.Duration(1); unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
