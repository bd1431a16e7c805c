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
	short: "put load on the servers, and tell how fast they and the client are",
	long: `So many goroutines perform one operation after the other for a while: "hit" on windows that
never get full, "increase" and "query" on counters, "insert" of new ones. "raw" is no client:
it writes frames that are encoded already, keeps so many operations outstanding, and counts
the bytes of their answers: the limit of servers and network. With -compare raw both take
turns, over as many connections, and so do different numbers of goroutines.

A ratio is one of operations/s: to raw with as many outstanding or, without it, to the first
row. CPU and allocations are those of this whole process. All records are purged in the end.
`,
	examples: []string{
		"throttr bench -workload increase -duration 5s",
		"throttr bench -workload hit -keys 1000 -goroutines 1,64,512 -compare raw",
		"throttr bench -workload raw -frames query -outstanding 64 -json",
	},
	timeout: "the `time` to connect and to make the keys in, and, with that of measuring, to purge them",
	define: func(f *flag.FlagSet) reader {
		b := bench{goroutines: counts{64}}
		f.Var(&b.workload, "workload", "`what` is done: hit, increase, query, insert or raw (default hit)")
		f.Var(&b.frames, "frames", "`what` raw does: hit, increase, query or insert (default increase)")
		f.StringVar(&b.compare, "compare", "", "`raw`: take turns with raw, and tell the ratio")
		f.Var(&b.goroutines, "goroutines", "how `many` do it; several numbers, as in 1,64, take turns (default 64)")
		f.IntVar(&b.outstanding, "outstanding", 0, "how many operations raw has outstanding, over all connections (default as -goroutines)")
		f.IntVar(&b.conns, "conns", 4, "connections per server at most: the client has another when those are busy, raw as many as it")
		f.IntVar(&b.keys, "keys", 1000, "how many `keys` are used, in random order")
		durationVar(f, &b.duration, "duration", 10*time.Second, "the `time` that each is measured; those that take turns have ten of a tenth")
		durationVar(f, &b.warmup, "warmup", time.Second, "the `time` that each runs before")
		return func(args []string) (task, error) {
			if err := needArgs(args); err != nil {
				return nil, err
			}
			return b.run, b.check(f)
		}
	},
}

// What bounds a bench.
const (
	maxBenchGoroutines  = 1 << 16
	maxBenchConns       = 1 << 10
	maxBenchKeys        = 10_000_000
	maxBenchOutstanding = maxBenchConns * maxOutstanding
	minBenchDuration    = 10 * time.Millisecond
	maxBenchDuration    = time.Hour
	// benchTTL is what records live that are not purged, a number of hours that fits every
	// value size.
	benchTTL = 12 * time.Hour
	// turns is how often each has its turn, where several take turns.
	turns = 10
)

// workload is what is done again and again. It is a flag.
type workload string

const (
	hitWorkload      workload = "hit"
	increaseWorkload workload = "increase"
	queryWorkload    workload = "query"
	insertWorkload   workload = "insert"
	rawWorkload      workload = "raw"
)

// String implements flag.Value.
func (w *workload) String() string { return string(*w) }

// Set implements flag.Value.
func (w *workload) Set(s string) error {
	*w = workload(s)
	if !slices.Contains([]workload{hitWorkload, increaseWorkload, queryWorkload, insertWorkload, rawWorkload}, *w) {
		return fmt.Errorf("there is no workload %q", s)
	}
	return nil
}

// counts is a flag: one or more numbers, of 1 or more.
type counts []int

// String implements flag.Value.
func (c *counts) String() string { return "" }

// Set implements flag.Value.
func (c *counts) Set(list string) error {
	*c = nil
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 || n > maxBenchGoroutines {
			return fmt.Errorf("%q is not a number of 1 to %d", item, maxBenchGoroutines)
		}
		*c = append(*c, n)
	}
	return nil
}

// bench is a measurement to be.
type bench struct {
	workload, frames workload
	compare          string
	goroutines       counts
	outstanding      int
	conns, keys      int
	duration, warmup time.Duration
}

// check completes what the flags say, or says what is wrong with it.
func (b *bench) check(f *flag.FlagSet) error {
	if b.workload == "" {
		b.workload = hitWorkload
	}
	alone := b.workload == rawWorkload
	switch {
	case b.compare != "" && b.compare != string(rawWorkload):
		return fmt.Errorf("-compare is raw, not %q", b.compare)
	case alone && b.compare != "":
		return errors.New("raw can't be compared with itself")
	case !alone && isSet(f, "frames"):
		return errors.New("-frames is for -workload raw")
	case b.frames == rawWorkload:
		return errors.New("-frames is hit, increase, query or insert")
	case isSet(f, "outstanding") && !alone && b.compare == "":
		return errors.New("-outstanding is for raw")
	}
	if !alone {
		b.frames = b.workload
	} else if b.frames == "" {
		b.frames = increaseWorkload
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

// contender is something whose speed is measured.
type contender interface {
	// prepare connects, and makes the records.
	prepare(ctx context.Context) error
	measure(ctx context.Context, cfg load.Config) (load.Result, error)
	// conns returns how many connections it uses.
	conns() int
	// clean purges the records, and lets the connections go.
	clean(ctx context.Context) error
}

// entrant is a contender with what it is to do, and what came of it.
type entrant struct {
	contender
	what       workload
	raw        bool
	goroutines int // of raw: operations outstanding
	results    []load.Result
}

// title names an entrant.
func (r *entrant) title() string {
	if r.raw {
		return "raw " + string(r.what)
	}
	return string(r.what)
}

// entrants returns all that take part: raw comes after the one with which it is compared.
func (b *bench) entrants(cfg throttr.Config) (all []*entrant) {
	for _, n := range b.goroutines {
		var conns func() int
		if b.workload != rawWorkload {
			c := &loadClient{cfg: cfg, workload: b.workload, keys: newKeys(b.keys), goroutines: n}
			all = append(all, &entrant{contender: c, what: b.workload, goroutines: n})
			conns = c.conns
		}
		if b.workload == rawWorkload || b.compare != "" {
			r := &raw{cfg: cfg, workload: b.frames, keys: newKeys(b.keys), outstanding: n, like: conns}
			if b.outstanding > 0 {
				r.outstanding = b.outstanding
			}
			all = append(all, &entrant{contender: r, what: b.frames, raw: true, goroutines: r.outstanding})
		}
	}
	return all
}

// run measures, and prints what was measured.
func (b *bench) run(ctx context.Context, e *env) (bool, error) {
	cfg, err := config(e.servers)
	if err != nil {
		return false, err
	}
	cfg.MaxConns = b.conns
	all := b.entrants(cfg)
	p := newProgress(e.stderr)
	defer func() {
		p.done()
		if err := b.clean(ctx, e, all); err != nil {
			fmt.Fprintf(e.stderr, "records are left behind: %v\n", err)
		}
	}()
	for _, r := range all {
		if err := b.ready(ctx, e, p, r); err != nil {
			return false, err
		}
	}
	if err := b.measure(ctx, p, all); err != nil {
		return false, err
	}
	p.done()
	return true, b.report(e.out, all)
}

// ready prepares an entrant, and warms it up: it has its connections then.
func (b *bench) ready(ctx context.Context, e *env, p *progress, r *entrant) error {
	_, err := bounded(func(ctx context.Context, _ *env) (bool, error) { return true, r.prepare(ctx) })(ctx, e)
	if err != nil {
		return err
	}
	_, err = r.measure(ctx, load.Config{
		Duration: max(b.warmup, time.Millisecond),
		Progress: func(now load.Progress) { p.tell("%s: warming up, %.0f/s", r.title(), now.PerSecond) },
	})
	return err
}

// measure has all entrants take turns, in an order that turns around each time.
func (b *bench) measure(ctx context.Context, p *progress, all []*entrant) error {
	n := turns
	if len(all) == 1 {
		n = 1
	}
	each := b.duration / time.Duration(n)
	for turn := range n {
		for _, r := range all {
			res, err := r.measure(ctx, load.Config{
				Warmup: min(each/10, 100*time.Millisecond), Duration: each,
				Progress: func(now load.Progress) {
					p.tell("%s: turn %d of %d, %.0f s of %v, %.0f/s", r.title(), turn+1, n, now.Elapsed.Seconds(), each, now.PerSecond)
				},
			})
			if err != nil {
				return err
			}
			r.results = append(r.results, res)
			p.tell("%s: turn %d of %d, %.0f/s", r.title(), turn+1, n, res.PerSecond)
		}
		slices.Reverse(all)
	}
	if n%2 == 1 {
		slices.Reverse(all)
	}
	return nil
}

// clean has all entrants clean up, however the measurement has ended. It may take as long as
// that, and the timeout: records may be as slow to purge as to make.
func (b *bench) clean(ctx context.Context, e *env, all []*entrant) error {
	timeout := e.timeout
	if timeout > 0 {
		timeout += (b.warmup + b.duration) * time.Duration(len(all))
	}
	_, err := bounded(func(ctx context.Context, _ *env) (bool, error) {
		var errs []error
		for _, r := range all {
			errs = append(errs, r.clean(ctx))
		}
		return true, errors.Join(errs...)
	})(context.WithoutCancel(ctx), &env{globals: &globals{timeout: timeout}})
	return err
}
