package main

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// title returns the first column of a row.
func (b *bench) title(r *row) string {
	switch {
	case r.raw:
		return "raw " + string(b.frames)
	case r.other:
		return "other " + string(b.workload)
	default:
		return string(b.workload)
	}
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
		report := load.Report{
			Workload: b.frames, Raw: r.raw, Other: r.other, Goroutines: r.goroutines, Conns: r.conns(), Keys: b.keys, Turns: len(r.results), Result: res,
		}
		fields := []string{
			b.title(r), number(r.goroutines), number(report.Conns), number(uint64(res.PerSecond)),
			load.FormatDuration(res.P50), load.FormatDuration(res.P99),
			load.FormatDuration(time.Duration(res.CPUPerOperation)), fmt.Sprintf("%.2f", res.AllocsPerOperation),
		}
		if failure != nil {
			fields = append(fields, number(res.Errors))
		}
		if base, ok := b.base(i); ok && results[base].PerSecond > 0 {
			ratio := b.speed(res, rows[base]) / results[base].PerSecond
			report.Ratio = &ratio
			fields = append(fields, fmt.Sprintf("%.3f", ratio))
		} else if len(rows) > 1 {
			fields = append(fields, "-")
		}
		out.add(report, fields...)
	}
	if b.workload == load.Sparse {
		b.reportWindows(out, rows, results)
	}
	return failure
}

// base returns the row that row i is compared with.
func (b *bench) base(i int) (base int, ok bool) {
	if b.compare != "" { // each row of the client is followed by one that it is compared with
		return i + 1, i%2 == 0
	}
	return 0, i > 0
}

// speed returns what is compared with the operations per second of a row: the windows opened per
// second, if an operation of the row is as much as one takes.
func (b *bench) speed(res load.Result, base *row) float64 {
	if base.raw && res.Windows != nil {
		return res.Windows.OpenedPerSecond(res.PerSecond)
	}
	return res.PerSecond
}
