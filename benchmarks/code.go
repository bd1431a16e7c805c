package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// codeBenchmarks are benchmarks of other packages. They report a ratio.
var codeBenchmarks = []struct {
	pkg, name string
	what      string
	bound     float64 // of the ratio
}{
	{"codec", "Update/encode", "codec, UPDATE encoded ÷ by hand: time", 1.5},
	{"codec", "Update/decode", "codec, UPDATE decoded ÷ by hand: time", 1.5},
	{"codec", "Query/encode", "codec, QUERY encoded ÷ by hand: time", 1.5},
	{"codec", "Query/decode", "codec, QUERY decoded ÷ by hand: time", 1.5},
	{"codec", "QueryResponse/encode", "codec, response to QUERY encoded ÷ by hand: time", 1.5},
	{"codec", "QueryResponse/decode", "codec, response to QUERY decoded ÷ by hand: time", 1.5},
	{"memory", "HitWhileCleaning", "`memory`, hit while a million expired keys are removed ÷ without: p99", 2},
}

// runCodeBenchmarks runs the benchmarks of other packages.
func (r *results) runCodeBenchmarks(ctx context.Context) error {
	for _, b := range codeBenchmarks {
		out, err := output(ctx, "go", "test", "github.com/throttr-go/throttr/"+b.pkg, "-run", "^$",
			"-bench", "^Benchmark"+strings.ReplaceAll(b.name, "/", "$/^")+"$", "-benchtime", r.plan.duration.String())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		ratio, err := reportedRatio(out)
		if err != nil {
			return fmt.Errorf("benchmark %s: %w", b.name, err)
		}
		name := b.pkg + " " + b.name
		r.ratios[name] = append(r.ratios[name], ratio)
	}
	return nil
}

var ratioMetric = regexp.MustCompile(`(?m)^Benchmark.*\s(\S+) ratio\b`)

// reportedRatio returns the ratio in the output of a benchmark.
func reportedRatio(out []byte) (float64, error) {
	m := ratioMetric.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("there is no ratio: %s", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
