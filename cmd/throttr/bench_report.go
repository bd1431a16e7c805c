package main

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// benchJSON is the JSON of a row.
type benchJSON struct {
	Workload   load.Workload `json:"workload"`
	Raw        bool          `json:"raw"`
	Goroutines int           `json:"goroutines"` // of raw: outstanding operations
	Conns      int           `json:"conns"`      // per server
	Keys       int           `json:"keys"`
	Turns      int           `json:"turns"` // that the result combines
	load.Result
	Ratio *float64 `json:"ratio,omitempty"` // of operations per second, to another row
}

// report prints all rows. It returns an error if operations failed.
func (b *bench) report(out *output, rows []*row) error {
	var failure error
	results := make([]load.Result, len(rows))
	for i, r := range rows {
		results[i] = load.Combine(r.results)
		if failure == nil {
			failure = results[i].Failure()
		}
	}
	columns := []string{"workload", ">goroutines", ">conns", ">ops/s", ">p50", ">p99", ">CPU/op", ">allocs"}
	if failure != nil {
		columns = append(columns, ">errors")
	}
	if len(rows) > 1 {
		columns = append(columns, ">ratio")
	}
	out.table(columns...)
	for i, r := range rows {
		res := results[i]
		report := benchJSON{
			Workload: b.workload, Raw: b.compare && i%2 == 1, Goroutines: r.goroutines, Conns: r.conns(), Keys: b.keys, Turns: len(r.results), Result: res,
		}
		fields := []string{
			r.title, number(r.goroutines), number(report.Conns), number(uint64(res.PerSecond)),
			load.FormatDuration(res.P50), load.FormatDuration(res.P99),
			load.FormatDuration(time.Duration(res.CPUPerOperation)), fmt.Sprintf("%.2f", res.AllocsPerOperation),
		}
		if failure != nil {
			fields = append(fields, number(res.Errors))
		}
		if base, ok := b.base(i); ok && results[base].PerSecond > 0 {
			ratio := res.PerSecond / results[base].PerSecond
			report.Ratio = &ratio
			fields = append(fields, fmt.Sprintf("%.3f", ratio))
		} else if len(rows) > 1 {
			fields = append(fields, "-")
		}
		out.add(report, fields...)
	}
	return failure
}

// base returns the row that row i is compared with.
func (b *bench) base(i int) (base int, ok bool) {
	if b.compare { // each row of the client is followed by one that it is compared with
		return i + 1, i%2 == 0
	}
	return 0, i > 0
}
