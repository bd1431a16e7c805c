package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/throttr-go/throttr/internal/load"
)

// The contenders that throttr bench measures: the client and raw, in turns and over as many
// connections.
const (
	benched     = "throttr bench"
	raw         = "raw"
	benchedSlow = "throttr bench, 3 µs server"
	rawSlow     = "raw, 3 µs server"
)

// rawComparison is a run of throttr bench -compare raw.
type rawComparison struct {
	workload   load.Workload
	goroutines []int // take turns
	slow       bool  // on the 3 µs server
}

// rawComparisons returns all runs of throttr bench.
func (p plan) rawComparisons() []rawComparison {
	return []rawComparison{
		{load.Increase, p.goroutines, false},
		{load.Increase, []int{64, 512}, true},
		{load.Hit, []int{64}, false},
		{load.Hit, []int{64}, true},
		{load.Query, []int{64}, false},
	}
}

// compareWithRaw measures throttr in turns with raw.
func (r *results) compareWithRaw(ctx context.Context, s *servers) error {
	for _, c := range r.plan.rawComparisons() {
		if err := r.bench(ctx, s, c); err != nil {
			return err
		}
	}
	return nil
}

// bench runs throttr bench.
func (r *results) bench(ctx context.Context, s *servers, c rawComparison) error {
	addr, client, rawClient := s.mock.addr, benched, raw
	if c.slow {
		addr, client, rawClient = s.slow.addr, benchedSlow, rawSlow
	}
	var goroutines []string
	for _, n := range c.goroutines {
		goroutines = append(goroutines, strconv.Itoa(n))
	}
	out, err := output(ctx, s.command, "bench", "-json", "-servers", addr, "-workload", string(c.workload),
		"-goroutines", strings.Join(goroutines, ","), "-compare", "raw", "-keys", strconv.Itoa(fewKeys),
		"-duration", r.plan.duration.String(), "-warmup", r.plan.warmup().String())
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
		m := measurement{string(report.Workload), client, fewKeys, report.Goroutines}
		if report.Raw {
			m.contender = rawClient
		}
		r.loads[m] = append(r.loads[m], report.Result)
	}
}
