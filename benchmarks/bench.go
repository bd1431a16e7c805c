package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// The contenders that throttr bench measures: the client; raw, in turns with it and over as many
// connections; and the client of the program of -before, in turns with it.
const (
	benched     = "throttr bench"
	raw         = "raw"
	benchedReal = "throttr bench, real times"
	rawReal     = "raw, real times"
	benchedOld  = "throttr, old server"
	before      = "throttr before, old server"
)

// comparison is a run of throttr bench, which compares the client with raw or with -before.
type comparison struct {
	workload   load.Workload
	keys       int
	goroutines []int // take turns
	addr       string
	duration   time.Duration
	with       string // the value of -compare
	// What the results are of.
	client, other string
}

// comparisons returns all runs of throttr bench.
func (p plan) comparisons(s *servers) (all []comparison) {
	for _, c := range []struct {
		workload   load.Workload
		goroutines []int
		real       bool
	}{
		{load.Increase, p.goroutines, false},
		{load.Increase, []int{64, 512}, true},
		{load.Hit, []int{64}, false},
		{load.Hit, []int{64}, true},
		{load.Query, []int{64}, false},
	} {
		if c.real {
			all = append(all, comparison{c.workload, fewKeys, c.goroutines, s.real.addr, p.duration, raw, benchedReal, rawReal})
		} else {
			all = append(all, comparison{c.workload, fewKeys, c.goroutines, s.mock.addr, p.duration, raw, benched, raw})
		}
	}
	for _, keys := range p.sparseKeys {
		all = append(all, comparison{load.Sparse, keys, []int{sparseGoroutines}, s.old.addr, p.sparse, p.before, benchedOld, before})
	}
	if p.before != "" {
		for _, keys := range []int{fewKeys, 1} {
			all = append(all, comparison{load.Hit, keys, []int{64}, s.old.addr, p.duration, p.before, benchedOld, before})
		}
	}
	return all
}

// runThrottrBench runs throttr bench for all comparisons.
func (r *results) runThrottrBench(ctx context.Context, s *servers) error {
	for _, c := range r.plan.comparisons(s) {
		if err := r.bench(ctx, s, c); err != nil {
			return err
		}
	}
	return nil
}

// bench runs throttr bench.
func (r *results) bench(ctx context.Context, s *servers, c comparison) error {
	var goroutines []string
	for _, n := range c.goroutines {
		goroutines = append(goroutines, strconv.Itoa(n))
	}
	args := []string{
		"bench", "--json", "--servers", c.addr, "--workload", string(c.workload), "--goroutines", strings.Join(goroutines, ","),
		"--keys", strconv.Itoa(c.keys), "--duration", c.duration.String(), "--warmup", r.plan.warmup().String(), "--timeout", "1m",
	}
	if c.with != "" {
		args = append(args, "--compare", c.with)
	}
	out, err := output(ctx, s.command, args...)
	if err != nil {
		return err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var report load.Report
		err := d.Decode(&report)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("throttr bench: %w", err)
		}
		m := measurement{string(report.Workload), c.client, c.keys, report.Goroutines}
		if report.Raw || report.Other {
			m.contender = c.other
		}
		r.loads[m] = append(r.loads[m], report.Result)
		fmt.Fprintf(os.Stderr, "%v: %.0f/s\n", m, report.PerSecond)
	}
}
