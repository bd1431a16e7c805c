package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/tools/load"
)

func benchCommand(e *env) *cobra.Command {
	b := bench{workload: load.Hit, goroutines: []int{64}}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure how fast the servers and the client are",
		Long: `A number of goroutines repeat one operation: "hit" on windows that never get
full, "increase" and "query" on counters, or "insert" of new counters. "sparse"
hits windows of --scale of many keys, so that most hits open a window, and
prints what an opened window takes the servers. The server time is that of a
real server that has made many records.

"raw" is no client: it writes encoded frames, keeps operations outstanding, and
counts the bytes of the responses. It shows the limit that servers and network
set. With --compare raw, client and raw take turns over as many connections. For
sparse, an operation of raw is as many requests of each kind as the client has
sent per opened window. With --compare and the path of another program
"throttr", such as an older one, the two programs take turns. Several numbers of
--goroutines take turns, too.

A ratio is one of operations/s: to the row that is compared or, without
--compare, to the first row. Sparse compares opened windows/s with raw. CPU and
allocations are those of the process. At the end, the command purges its
records.

--timeout bounds the time to connect and make keys. To purge them, the time of
measuring is added.`,
		Example: `  throttr bench --workload increase --duration 5s
  throttr bench --workload hit --keys 1000 --goroutines 1,64,512 --compare raw
  throttr bench --workload raw --frames query --outstanding 64 --json
  throttr bench --workload sparse --compare /usr/local/bin/throttr`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(cmd.Flags()); err != nil {
				return err
			}
			return b.run(cmd.Context(), e)
		},
	}
	f := cmd.Flags()
	f.Func("workload", "the `operation`: hit, sparse, increase, query, insert or raw (default hit)", func(s string) (err error) {
		b.workload, err = parseWorkload(s, append(slices.Clip(load.Workloads), load.Sparse, raw))
		return err
	})
	f.Func("frames", "the `operation` of raw: hit, increase, query or insert (default increase)", func(s string) (err error) {
		b.frames, err = parseWorkload(s, load.Workloads)
		return err
	})
	f.StringVar(&b.compare, "compare", "", "raw or the `path` of another program: take turns with it, and print the ratio")
	f.Func("goroutines", "the `number` of goroutines; several numbers, such as 1,64, take turns (default 64)", func(s string) (err error) {
		b.goroutines, err = parseCounts(s)
		return err
	})
	f.IntVar(&b.outstanding, "outstanding", 0, "the number of outstanding operations of raw, over all connections (default as --goroutines)")
	f.IntVar(&b.conns, "conns", 4, "the largest number of connections per server; the client opens another one if those it has are busy")
	f.IntVar(&b.keys, "keys", 1000, "the number of `keys`, which are used in random order; of sparse: 20000 unless it is given")
	durationVar(f, &b.scale, "scale", time.Second, "the `scale` of sparse")
	f.Uint64Var(&b.limit, "limit", 20, "the `limit` of sparse")
	f.BoolVar(&b.turns, "turns", false, "measure one turn for each duration on standard input; --compare starts the other program so")
	durationVar(f, &b.duration, "duration", 10*time.Second, "the `time` to measure each row; rows that take turns have ten turns of a tenth, or four of sparse")
	durationVar(f, &b.warmup, "warmup", time.Second, "the `time` that each row runs before")
	var workloads []string
	for _, w := range load.Workloads {
		workloads = append(workloads, string(w))
	}
	complete(cmd, "frames", workloads...)
	complete(cmd, "workload", append(workloads, string(load.Sparse), string(raw))...)
	return cmd
}

// The bounds of the flags.
const (
	maxBenchGoroutines  = 1 << 16
	maxBenchConns       = 1 << 10
	maxBenchKeys        = 10_000_000
	maxBenchOutstanding = maxBenchConns * load.MaxResponses
	maxSparseScale      = time.Minute
	minBenchDuration    = 10 * time.Millisecond
	maxBenchDuration    = time.Hour
)

// The number of turns if there is more than one row. A turn of sparse takes some scales more than
// its duration.
const (
	turns       = 10
	sparseTurns = 4
)

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
	scale            time.Duration // of sparse
	limit            uint64        // of sparse
	turns            bool          // takes turns with the program that has started this one
	duration, warmup time.Duration
}

// check completes b, or returns an error if the flags contradict each other.
func (b *bench) check(f *pflag.FlagSet) error {
	onlyRaw := b.workload == raw
	switch {
	case onlyRaw && b.compare != "":
		return errors.New("raw can't be compared")
	case b.workload != load.Sparse && (f.Changed("scale") || f.Changed("limit")):
		return errors.New("--scale and --limit are for --workload sparse")
	case b.workload == load.Sparse && (b.scale < time.Millisecond || b.scale > maxSparseScale || b.limit == 0):
		return fmt.Errorf("--scale is 1ms to %v, and --limit at least 1", maxSparseScale)
	case b.turns && (onlyRaw || b.compare != "" || len(b.goroutines) > 1):
		return errors.New("--turns is for one row of a client")
	case !onlyRaw && f.Changed("frames"):
		return errors.New("--frames is for --workload raw")
	case f.Changed("outstanding") && !onlyRaw && b.compare != string(raw):
		return errors.New("--outstanding is for raw")
	}
	if b.workload == load.Sparse && !f.Changed("keys") {
		b.keys = 20_000
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
			return fmt.Errorf("--%s %d is not within %d to %d", n.name, n.value, n.low, n.high)
		}
	}
	if b.duration < minBenchDuration || b.duration > maxBenchDuration || b.warmup < 0 || b.warmup > maxBenchDuration {
		return fmt.Errorf("--duration and --warmup are at most %v, and --duration is at least %v", maxBenchDuration, minBenchDuration)
	}
	return nil
}

// contender is a client, raw or another program.
type contender interface {
	load.Contender
	// prepare connects and makes the records.
	prepare(ctx context.Context) error
	// warmUp lets it run for a while.
	warmUp(ctx context.Context, d time.Duration, report func(load.Progress)) error
	// conns returns the number of connections per server.
	conns() int
	// cleanUp purges the records and disconnects.
	cleanUp(ctx context.Context) error
}

// row is a row of the output.
type row struct {
	contender
	raw, other bool
	goroutines int // of raw: outstanding operations
	results    []load.Result
}

// rows returns the rows: for each number of goroutines the client, raw, or the client and then
// what it is compared with.
func (b *bench) rows(cfg throttr.Config, servers string) (all []*row) {
	for _, n := range b.goroutines {
		r := &rawLoad{cfg: cfg, workload: b.frames, keys: newKeys(b.keys), outstanding: cmp.Or(b.outstanding, n)}
		switch b.workload {
		case raw:
		case load.Sparse:
			c := &sparseLoad{cfg: cfg, keys: newKeys(b.keys), goroutines: n, scale: b.scale, limit: b.limit}
			all = append(all, &row{contender: c, goroutines: n})
			r.maxConns, r.mix = c.conns, c.mix
		default:
			c := &clientLoad{cfg: cfg, workload: b.workload, keys: newKeys(b.keys), goroutines: n}
			all = append(all, &row{contender: c, goroutines: n})
			r.maxConns = c.conns
		}
		switch {
		case b.workload == raw, b.compare == string(raw):
			all = append(all, &row{contender: r, raw: true, goroutines: r.outstanding})
		case b.compare != "":
			all = append(all, &row{contender: newOtherLoad(b, servers, n), other: true, goroutines: n})
		}
	}
	return all
}

// warmUp is contender.warmUp of most.
func warmUp(ctx context.Context, c load.Contender, d time.Duration, report func(load.Progress)) error {
	_, err := c.Measure(ctx, load.Config{Duration: max(d, time.Millisecond), Progress: report})
	return err
}

// run measures all rows, prints them, and cleans up.
func (b *bench) run(ctx context.Context, e *env) error {
	cfg, err := e.config()
	if err != nil {
		return err
	}
	cfg.MaxConns = b.conns
	rows := b.rows(cfg, e.servers)
	p := newProgress(e.stderr)
	defer func() {
		p.clear()
		if err := b.cleanUp(ctx, e, rows); err != nil {
			fmt.Fprintf(e.stderr, "records are left behind: %v\n", err)
		}
	}()
	for _, r := range rows {
		if err := b.prepare(ctx, e, p, r); err != nil {
			return err
		}
	}
	if b.turns {
		p.clear()
		return b.takeTurns(ctx, e, rows[0])
	}
	if err := b.measure(ctx, p, rows); err != nil {
		return err
	}
	p.clear()
	return b.report(e.out, rows)
}

// prepare prepares a row and lets it run for a while. The client then has as many connections
// as it needs.
func (b *bench) prepare(ctx context.Context, e *env, p *progress, r *row) error {
	err := withTimeout(ctx, e.timeout, func(ctx context.Context) (bool, error) {
		return true, r.contender.prepare(ctx)
	})
	if err != nil {
		return err
	}
	p.start("%s: warming up for %v", b.title(r), b.warmup)
	return r.warmUp(ctx, b.warmup, func(now load.Progress) { p.printf("%s: warming up, %.0f/s", b.title(r), now.PerSecond) })
}

// measure measures all rows in turns.
func (b *bench) measure(ctx context.Context, p *progress, rows []*row) error {
	n := turns
	switch {
	case len(rows) == 1:
		n = 1
	case b.workload == load.Sparse:
		n = sparseTurns
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
	return withTimeout(context.WithoutCancel(ctx), timeout, func(ctx context.Context) (bool, error) {
		var errs []error
		for _, r := range rows {
			errs = append(errs, r.contender.cleanUp(ctx))
		}
		return true, errors.Join(errs...)
	})
}
