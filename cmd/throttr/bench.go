package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/tools/load"
)

func benchCommand(e *env) *cobra.Command {
	b := bench{workload: load.Hit}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure how fast the servers and the client are",
		Long: `A number of goroutines repeat one operation: "hit" on windows that never get
full, or "increase" and "query" on counters.

With --compare raw, the client takes turns with what is no client: "raw" writes
encoded frames over as many connections, keeps as many operations outstanding,
and counts the bytes of the responses. It shows the limit that servers and
network set. Several numbers of --goroutines take turns, too.

A ratio is one of operations/s: to the row that is compared or, without
--compare, to the first row. CPU and allocations are those of the process. At
the end, the command purges its records.

--timeout bounds the time to connect and make keys. To purge them, the time of
measuring is added.`,
		Example: `  throttr bench --workload increase --duration 5s
  throttr bench --workload hit --keys 1000 --goroutines 1,64,512 --compare raw`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			return b.run(cmd.Context(), e)
		},
	}
	f := cmd.Flags()
	f.Func("workload", "the `operation`: hit, increase or query (default hit)", func(s string) error {
		b.workload = load.Workload(s)
		return oneOf(s, workloads)
	})
	f.Func("compare", "`raw`: take turns with it, and print the ratio", func(s string) error {
		b.compare = true
		return oneOf(s, []string{"raw"})
	})
	f.IntSliceVar(&b.goroutines, "goroutines", []int{64}, "the `number` of goroutines; several numbers, such as 1,64, take turns")
	f.Lookup("goroutines").DefValue = "64" // without brackets
	f.IntVar(&b.conns, "conns", 4, "the largest number of connections per server; the client opens another one if those it has are busy")
	f.IntVar(&b.keys, "keys", 1000, "the number of `keys`, which are used in random order")
	durationVar(f, &b.duration, "duration", 10*time.Second, "the `time` to measure each row; rows that take turns have ten turns of a tenth")
	durationVar(f, &b.warmup, "warmup", time.Second, "the `time` that each row runs before")
	complete(cmd, "workload", workloads...)
	complete(cmd, "compare", "raw")
	return cmd
}

// The bounds of the flags.
const (
	maxBenchGoroutines = 1 << 16
	maxBenchConns      = 1 << 10
	maxBenchKeys       = 10_000_000
	minBenchDuration   = 10 * time.Millisecond
	maxBenchDuration   = time.Hour
)

// turns is the number of turns if there is more than one row.
const turns = 10

var workloads = []string{string(load.Hit), string(load.Increase), string(load.Query)}

// oneOf returns an error if the value of a flag is not a known one.
func oneOf(value string, known []string) error {
	if !slices.Contains(known, value) {
		return fmt.Errorf("not one of %s", strings.Join(known, " "))
	}
	return nil
}

// bench is the command line of a bench.
type bench struct {
	workload         load.Workload
	compare          bool // with raw
	goroutines       []int
	conns, keys      int
	duration, warmup time.Duration
}

// check returns an error if a flag is out of bounds.
func (b *bench) check() error {
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"conns", b.conns, maxBenchConns},
		{"keys", b.keys, maxBenchKeys},
		{"goroutines", slices.Min(b.goroutines), maxBenchGoroutines},
		{"goroutines", slices.Max(b.goroutines), maxBenchGoroutines},
	} {
		if n.value < 1 || n.value > n.most {
			return fmt.Errorf("--%s %d is not within 1 to %d", n.name, n.value, n.most)
		}
	}
	if b.duration < minBenchDuration || b.duration > maxBenchDuration || b.warmup < 0 || b.warmup > maxBenchDuration {
		return fmt.Errorf("--duration and --warmup are at most %v, and --duration is at least %v", maxBenchDuration, minBenchDuration)
	}
	return nil
}

// row is a row of the output: a client, or raw.
type row struct {
	load.Contender
	title      string
	goroutines int                             // of raw: outstanding operations
	conns      func() int                      // returns the number of connections per server
	prepare    func(ctx context.Context) error // connects and makes the records
	cleanUp    func(ctx context.Context) error // purges the records and disconnects
	results    []load.Result
}

// rows returns the rows: for each number of goroutines the client, and then raw.
func (b *bench) rows(cfg throttr.Config) (all []*row) {
	for _, n := range b.goroutines {
		c := &clientLoad{cfg: cfg, workload: b.workload, keys: newKeys("", b.keys), goroutines: n}
		all = append(all, &row{Contender: c, title: string(b.workload), goroutines: n, conns: c.conns, prepare: c.prepare, cleanUp: c.cleanUp})
		if b.compare {
			r := &rawLoad{cfg: cfg, workload: b.workload, client: c}
			all = append(all, &row{Contender: r, title: "raw " + string(b.workload), goroutines: n, conns: r.conns, prepare: r.prepare, cleanUp: r.cleanUp})
		}
	}
	return all
}

// run measures all rows, prints them, and cleans up.
func (b *bench) run(ctx context.Context, e *env) error {
	cfg, err := e.config()
	if err != nil {
		return err
	}
	if b.compare && cfg.TLS != nil {
		return errors.New("raw does not support TLS")
	}
	cfg.MaxConns = b.conns
	rows := b.rows(cfg)
	defer func() {
		if err := b.cleanUp(ctx, e, rows); err != nil {
			fmt.Fprintf(e.stderr, "records are left behind: %v\n", err)
		}
	}()
	for _, r := range rows {
		if err := b.prepare(ctx, e, r); err != nil {
			return err
		}
	}
	if err := b.measure(ctx, rows); err != nil {
		return err
	}
	return b.report(e.out, rows)
}

// prepare prepares a row and lets it run for a while. The client then has as many connections
// as it needs.
func (b *bench) prepare(ctx context.Context, e *env, r *row) error {
	err := withTimeout(ctx, e.timeout, func(ctx context.Context) (bool, error) { return true, r.prepare(ctx) })
	if err != nil {
		return err
	}
	_, err = r.Measure(ctx, load.Config{Duration: max(b.warmup, time.Millisecond)})
	return err
}

// measure measures all rows in turns.
func (b *bench) measure(ctx context.Context, rows []*row) error {
	n := turns
	if len(rows) == 1 {
		n = 1
	}
	results, err := load.Compare(ctx, b.duration, n, rows)
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
	return withTimeout(context.WithoutCancel(ctx), timeout, func(ctx context.Context) (bool, error) {
		var errs []error
		for _, r := range rows {
			errs = append(errs, r.cleanUp(ctx))
		}
		return true, errors.Join(errs...)
	})
}
