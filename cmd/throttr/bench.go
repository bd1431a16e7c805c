package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/load"
)

var benchCommand = command{
	name:  "bench",
	short: "measure how fast the servers and the client are",
	long: `A number of goroutines repeat one operation: "hit" on windows that never get full, "increase"
and "query" on counters, or "insert" of new counters. "raw" is no client: it writes encoded
frames, keeps operations outstanding, and counts the bytes of the responses. It shows the limit
that servers and network set. With -compare raw, client and raw take turns over as many
connections. Several numbers of -goroutines take turns, too.

A ratio is one of operations/s: to raw with as many outstanding operations or, without
-compare, to the first row. CPU and allocations are those of the process. At the end, the command
purges its records.
`,
	examples: []string{
		"throttr bench -workload increase -duration 5s",
		"throttr bench -workload hit -keys 1000 -goroutines 1,64,512 -compare raw",
		"throttr bench -workload raw -frames query -outstanding 64 -json",
	},
	timeout: "the `time` to connect and make keys; to purge them, the time of measuring is added",
	define: func(f *flag.FlagSet) parser {
		b := bench{workload: load.Hit, goroutines: []int{64}}
		f.Func("workload", "the `operation`: hit, increase, query, insert or raw (default hit)", func(s string) (err error) {
			b.workload, err = parseWorkload(s, append(slices.Clip(load.Workloads), raw))
			return err
		})
		f.Func("frames", "the `operation` of raw: hit, increase, query or insert (default increase)", func(s string) (err error) {
			b.frames, err = parseWorkload(s, load.Workloads)
			return err
		})
		f.StringVar(&b.compare, "compare", "", "`raw`: take turns with raw, and print the ratio")
		f.Func("goroutines", "the `number` of goroutines; several numbers, such as 1,64, take turns (default 64)", func(s string) (err error) {
			b.goroutines, err = parseCounts(s)
			return err
		})
		f.IntVar(&b.outstanding, "outstanding", 0, "the number of outstanding operations of raw, over all connections (default as -goroutines)")
		f.IntVar(&b.conns, "conns", 4, "the largest number of connections per server; the client opens another one if those it has are busy")
		f.IntVar(&b.keys, "keys", 1000, "the number of `keys`, which are used in random order")
		durationVar(f, &b.duration, "duration", 10*time.Second, "the `time` to measure each row; rows that take turns have ten turns of a tenth")
		durationVar(f, &b.warmup, "warmup", time.Second, "the `time` that each row runs before")
		return func(args []string) (action, error) {
			if err := needArgs(args); err != nil {
				return nil, err
			}
			return b.run, b.check(f)
		}
	},
}

// The bounds of the flags.
const (
	maxBenchGoroutines  = 1 << 16
	maxBenchConns       = 1 << 10
	maxBenchKeys        = 10_000_000
	maxBenchOutstanding = maxBenchConns * load.MaxResponses
	minBenchDuration    = 10 * time.Millisecond
	maxBenchDuration    = time.Hour
)

// turns is the number of turns if there is more than one row.
const turns = 10

// raw is the workload that [load.Raw] runs.
const raw load.Workload = "raw"

// parseWorkload returns the workload of a name, if it is a known one.
func parseWorkload(name string, known []load.Workload) (load.Workload, error) {
	if w := load.Workload(name); slices.Contains(known, w) {
		return w, nil
	}
	return "", fmt.Errorf("not one of %s", strings.Trim(fmt.Sprint(known), "[]"))
}

// parseCounts parses one or more numbers of goroutines.
func parseCounts(list string) (counts []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 || n > maxBenchGoroutines {
			return nil, fmt.Errorf("%q is not a number of 1 to %d", item, maxBenchGoroutines)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// bench is the command line of a bench.
type bench struct {
	workload, frames load.Workload
	compare          string
	goroutines       []int
	outstanding      int
	conns, keys      int
	duration, warmup time.Duration
}

// check completes b, or returns an error if the flags contradict each other.
func (b *bench) check(f *flag.FlagSet) error {
	onlyRaw := b.workload == raw
	switch {
	case b.compare != "" && b.compare != string(raw):
		return fmt.Errorf("-compare is raw, not %q", b.compare)
	case onlyRaw && b.compare != "":
		return errors.New("raw can't be compared with itself")
	case !onlyRaw && isSet(f, "frames"):
		return errors.New("-frames is for -workload raw")
	case isSet(f, "outstanding") && !onlyRaw && b.compare == "":
		return errors.New("-outstanding is for raw")
	}
	if !onlyRaw {
		b.frames = b.workload
	} else if b.frames == "" {
		b.frames = load.Increase
	}
	for _, n := range []struct {
		name      string
		value     int
		low, high int
	}{
		{"conns", b.conns, 1, maxBenchConns},
		{"keys", b.keys, 1, maxBenchKeys},
		{"outstanding", b.outstanding, 0, maxBenchOutstanding},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("-%s %d is not within %d to %d", n.name, n.value, n.low, n.high)
		}
	}
	if b.duration < minBenchDuration || b.duration > maxBenchDuration || b.warmup < 0 || b.warmup > maxBenchDuration {
		return fmt.Errorf("-duration and -warmup are at most %v, and -duration is at least %v", maxBenchDuration, minBenchDuration)
	}
	return nil
}

// contender is a client or raw.
type contender interface {
	load.Contender
	// prepare connects and makes the records.
	prepare(ctx context.Context) error
	// conns returns the number of connections per server.
	conns() int
	// cleanUp purges the records and disconnects.
	cleanUp(ctx context.Context) error
}

// row is a row of the output.
type row struct {
	contender
	raw        bool
	goroutines int // of raw: outstanding operations
	results    []load.Result
}

// rows returns the rows: for each number of goroutines the client, raw, or the client and then
// raw.
func (b *bench) rows(cfg throttr.Config) (all []*row) {
	for _, n := range b.goroutines {
		var conns func() int
		if b.workload != raw {
			c := &clientLoad{cfg: cfg, workload: b.workload, keys: newKeys(b.keys), goroutines: n}
			all = append(all, &row{contender: c, goroutines: n})
			conns = c.conns
		}
		if b.workload == raw || b.compare != "" {
			if b.outstanding > 0 {
				n = b.outstanding
			}
			r := &rawLoad{cfg: cfg, workload: b.frames, keys: newKeys(b.keys), outstanding: n, maxConns: conns}
			all = append(all, &row{contender: r, raw: true, goroutines: n})
		}
	}
	return all
}

// run measures all rows, prints them, and cleans up.
func (b *bench) run(ctx context.Context, e *env) (bool, error) {
	cfg, err := config(e.servers)
	if err != nil {
		return false, err
	}
	cfg.MaxConns = b.conns
	rows := b.rows(cfg)
	p := newProgress(e.stderr)
	defer func() {
		p.clear()
		if err := b.cleanUp(ctx, e, rows); err != nil {
			fmt.Fprintf(e.stderr, "records are left behind: %v\n", err)
		}
	}()
	for _, r := range rows {
		if err := b.prepare(ctx, e, p, r); err != nil {
			return false, err
		}
	}
	if err := b.measure(ctx, p, rows); err != nil {
		return false, err
	}
	p.clear()
	return true, b.report(e.out, rows)
}

// prepare prepares a row and lets it run for a while. The client then has as many connections
// as it needs.
func (b *bench) prepare(ctx context.Context, e *env, p *progress, r *row) error {
	_, err := withTimeout(func(ctx context.Context, _ *env) (bool, error) {
		return true, r.contender.prepare(ctx)
	})(ctx, e)
	if err != nil {
		return err
	}
	_, err = r.Measure(ctx, load.Config{
		Duration: max(b.warmup, time.Millisecond),
		Progress: func(now load.Progress) { p.printf("%s: warming up, %.0f/s", b.title(r), now.PerSecond) },
	})
	return err
}

// measure measures all rows in turns.
func (b *bench) measure(ctx context.Context, p *progress, rows []*row) error {
	n := turns
	if len(rows) == 1 {
		n = 1
	}
	contenders := make([]load.Contender, len(rows))
	for i, r := range rows {
		contenders[i] = r
	}
	results, err := load.Compare(ctx, b.duration, n, contenders, func(i, turn int, now load.Progress) {
		p.printf("%s: turn %d of %d, %.0f s of %v, %.0f/s",
			b.title(rows[i]), turn+1, n, now.Elapsed.Seconds(), b.duration/time.Duration(n), now.PerSecond)
	})
	if err != nil {
		return err
	}
	for i, r := range rows {
		r.results = results[i]
	}
	return nil
}

// cleanUp cleans up after all rows, even if ctx has ended. It may take the timeout and the time
// of measuring: to purge records can take as long as to make them.
func (b *bench) cleanUp(ctx context.Context, e *env, rows []*row) error {
	timeout := e.timeout
	if timeout > 0 {
		timeout += (b.warmup + b.duration) * time.Duration(len(rows))
	}
	_, err := withTimeout(func(ctx context.Context, _ *env) (bool, error) {
		var errs []error
		for _, r := range rows {
			errs = append(errs, r.contender.cleanUp(ctx))
		}
		return true, errors.Join(errs...)
	})(context.WithoutCancel(ctx), &env{globals: &globals{timeout: timeout}})
	return err
}
