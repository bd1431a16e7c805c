package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/load"
)

// benchRecord is what was measured in JSON.
type benchRecord struct {
	Workload   workload `json:"workload"`
	Raw        bool     `json:"raw"`
	Goroutines int      `json:"goroutines"` // of raw: operations outstanding
	Conns      int      `json:"conns"`      // per server
	Keys       int      `json:"keys"`
	Turns      int      `json:"turns"` // of which the figures are medians, and counts sums
	load.Result
	Ratio *float64 `json:"ratio,omitempty"`
}

// report prints what all have achieved, and returns an error if operations have failed.
func (b *bench) report(out *output, all []*entrant) error {
	columns := []string{"workload", ">goroutines", ">conns", ">ops/s", ">p50", ">p99", ">p99.9", ">CPU/op", ">allocs/op", ">errors"}
	if len(all) > 1 {
		columns = append(columns, ">ratio")
	}
	out.table(columns...)
	var failure error
	results := make([]load.Result, len(all))
	for i, r := range all {
		results[i] = medians(r.results)
	}
	for i, r := range all {
		res := results[i]
		record := benchRecord{
			Workload: r.what, Raw: r.raw, Goroutines: r.goroutines, Conns: r.conns(), Keys: b.keys, Turns: len(r.results), Result: res,
		}
		cells := []string{
			r.title(), number(r.goroutines), number(record.Conns), number(uint64(res.PerSecond)),
			brief(res.P50), brief(res.P99), brief(res.P999), brief(time.Duration(res.CPUPerOperation)),
			fmt.Sprintf("%.2f", res.AllocsPerOperation), number(res.Errors),
		}
		if base, ok := baseOf(all, i); ok && results[base].PerSecond > 0 {
			ratio := res.PerSecond / results[base].PerSecond
			record.Ratio = &ratio
			cells = append(cells, fmt.Sprintf("%.3f", ratio))
		} else if len(all) > 1 {
			cells = append(cells, "-")
		}
		out.add(record, cells...)
		if res.Errors > 0 && failure == nil {
			failure = fmt.Errorf("%d operations have failed, the first: %w", res.Errors, res.FirstError)
		}
	}
	return failure
}

// baseOf returns to whom an entrant is compared.
func baseOf(all []*entrant, i int) (base int, ok bool) {
	switch {
	case all[i].raw && !all[0].raw:
		return 0, false
	case i+1 < len(all) && all[i+1].raw && !all[i].raw:
		return i + 1, true
	}
	return 0, i > 0
}

// medians returns the median of each figure, and the sums of what is counted.
func medians(results []load.Result) load.Result {
	m := load.Result{
		PerSecond:          median(results, func(r load.Result) float64 { return r.PerSecond }),
		P50:                median(results, func(r load.Result) time.Duration { return r.P50 }),
		P99:                median(results, func(r load.Result) time.Duration { return r.P99 }),
		P999:               median(results, func(r load.Result) time.Duration { return r.P999 }),
		CPUPerOperation:    median(results, func(r load.Result) float64 { return r.CPUPerOperation }),
		AllocsPerOperation: median(results, func(r load.Result) float64 { return r.AllocsPerOperation }),
		BytesPerOperation:  median(results, func(r load.Result) float64 { return r.BytesPerOperation }),
	}
	for _, r := range results {
		m.Operations += r.Operations
		m.Errors += r.Errors
		m.Elapsed += r.Elapsed
		m.Max = max(m.Max, r.Max)
		if m.FirstError == nil {
			m.FirstError = r.FirstError
		}
	}
	return m
}

func median[N float64 | time.Duration](results []load.Result, of func(load.Result) N) N {
	all := make([]N, len(results))
	for i, r := range results {
		all[i] = of(r)
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// brief returns a duration to three digits or so.
func brief(d time.Duration) string {
	for unit := time.Duration(1); unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}
