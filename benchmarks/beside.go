package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/throttr-go/throttr/internal/load"
)

// Who is measured by throttr bench, which has the client and raw frames take turns over as
// many connections.
const (
	benched     = "throttr bench"
	raw         = "raw"
	benchedSlow = "throttr bench, 3 µs server"
	rawSlow     = "raw, 3 µs server"
)

// besideRaw measures throttr beside raw frames.
func (r *results) besideRaw(ctx context.Context, s *servers) error {
	var all []string
	for _, n := range r.plan.goroutines {
		all = append(all, strconv.Itoa(n))
	}
	for _, b := range []struct {
		server     *process
		workload   string
		goroutines string
		who, raw   string
	}{
		{s.mock, "increase", strings.Join(all, ","), benched, raw},
		{s.slow, "increase", "64,512", benchedSlow, rawSlow},
		{s.mock, "hit", "64", benched, raw},
		{s.slow, "hit", "64", benchedSlow, rawSlow},
		{s.mock, "query", "64", benched, raw},
	} {
		out, err := output(ctx, s.command, "bench", "-json", "-servers", b.server.addr, "-workload", b.workload,
			"-goroutines", b.goroutines, "-compare", "raw", "-keys", strconv.Itoa(fewKeys),
			"-duration", r.plan.duration.String(), "-warmup", r.plan.warmup().String())
		if err != nil {
			return err
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var record struct {
				Workload   string
				Raw        bool
				Goroutines int
				load.Result
			}
			err := d.Decode(&record)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("throttr bench: %w", err)
			}
			id := id{record.Workload, b.who, fewKeys, record.Goroutines}
			if record.Raw {
				id.who = b.raw
			}
			r.loads[id] = append(r.loads[id], record.Result)
		}
	}
	return nil
}

// benchmarks lie beside the code, and report a ratio.
var benchmarks = []struct {
	pkg, name string
	what      string
	bound     float64 // of the ratio
}{
	{"codec", "EncodeUpdate", "codec, UPDATE encoded ÷ by hand: time", 1.5},
	{"codec", "DecodeUpdate", "codec, UPDATE decoded ÷ by hand: time", 1.5},
	{"codec", "EncodeQuery", "codec, QUERY encoded ÷ by hand: time", 1.5},
	{"codec", "DecodeQuery", "codec, QUERY decoded ÷ by hand: time", 1.5},
	{"codec", "EncodeQueryResponse", "codec, answer to QUERY encoded ÷ by hand: time", 1.5},
	{"codec", "DecodeQueryResponse", "codec, answer to QUERY decoded ÷ by hand: time", 1.5},
	{"memory", "HitWhileCleaning", "`memory`, hit while a million expired keys are removed ÷ without: p99", 2},
}

// besideCode runs the benchmarks that lie beside the code.
func (r *results) besideCode(ctx context.Context) error {
	for _, b := range benchmarks {
		out, err := output(ctx, "go", "test", "github.com/throttr-go/throttr/"+b.pkg, "-run", "^$",
			"-bench", "^Benchmark"+b.name+"$", "-benchtime", r.plan.duration.String())
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

// reportedRatio returns the ratio that a benchmark has printed.
func reportedRatio(out []byte) (float64, error) {
	m := ratioMetric.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("there is no ratio: %s", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
