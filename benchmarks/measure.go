package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"

	"github.com/throttr-go/throttr/internal/load"
)

const (
	fewKeys  = 1000
	manyKeys = 100_000
)

// oneKeyGoroutines are how many hit the same key.
var oneKeyGoroutines = []int{1, 64}

// ballast is memory that the process holds, as a service does: with next to none, the
// collector would run all the time, at the cost of whoever allocates.
var ballast = make([]byte, 64<<20)

// errDenied says that more was done than a key is allowed.
var errDenied = errors.New("an operation was denied: measure for a shorter time")

// id says what has been measured.
type id struct {
	workload   string
	who        string
	keys       int
	goroutines int
}

// String says it in words.
func (i id) String() string {
	return fmt.Sprintf("%s of %s, %d keys, %d goroutines", i.workload, i.who, i.keys, i.goroutines)
}

// results are what was measured.
type results struct {
	plan     plan
	loads    map[id][]load.Result // by round
	perKey   map[string]float64   // bytes that a key takes, by contender
	ratios   map[string][]float64 // by round, of benchmarks that lie beside the code
	versions []string
}

// measure has all that take part measured, one after the other, round after round.
func measure(ctx context.Context, p plan, s *servers) (*results, error) {
	defer runtime.KeepAlive(ballast)
	r := &results{
		plan: p, loads: map[id][]load.Result{}, perKey: map[string]float64{}, ratios: map[string][]float64{}, versions: versions(ctx),
	}
	if err := r.fill(ctx); err != nil {
		return nil, err
	}
	for round := range p.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, p.rounds)
		if err := r.round(ctx, s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// round measures everything once. Those who are compared come one after the other.
func (r *results) round(ctx context.Context, s *servers) error {
	for _, w := range []workload{increase, hit} {
		for _, n := range r.plan.goroutines {
			if err := r.compare(ctx, s, w, fewKeys, n); err != nil {
				return err
			}
		}
	}
	for _, n := range oneKeyGoroutines {
		if err := r.compare(ctx, s, hit, 1, n); err != nil {
			return err
		}
	}
	for _, at := range []struct{ keys, goroutines int }{{1, 1}, {manyKeys, 2}} {
		if err := r.compare(ctx, s, embedded, at.keys, at.goroutines); err != nil {
			return err
		}
	}
	for _, n := range r.plan.windows {
		if err := r.turn(ctx, s, embedded.name, memoryLimit, n, 1); err != nil {
			return err
		}
	}
	if err := r.besideRaw(ctx, s); err != nil {
		return err
	}
	return r.besideCode(ctx)
}

// compare has all contenders of a workload take their turn.
func (r *results) compare(ctx context.Context, s *servers, w workload, keys, goroutines int) error {
	for _, c := range w.contenders {
		if err := r.turn(ctx, s, w.name, c, keys, goroutines); err != nil {
			return err
		}
	}
	return nil
}

// turn measures a contender, which is alone in the process.
func (r *results) turn(ctx context.Context, s *servers, workload string, c contender, n, goroutines int) error {
	id := id{workload, c.name, n, goroutines}
	keys := newKeys(n)
	subject, err := c.start(ctx, job{servers: s, keys: n, limit: limit})
	if err != nil {
		return fmt.Errorf("%v: %w", id, err)
	}
	defer subject.stop()
	if err := subject.touch(ctx, keys, goroutines); err != nil {
		return fmt.Errorf("%v: %w", id, err)
	}
	cfg := load.Config{Goroutines: goroutines, Warmup: r.plan.warmup(), Duration: r.plan.duration}
	if workload == embedded.name {
		cfg.Batch = 100 // a look at the clock takes as long as some hits
	}
	runtime.GC()
	res, err := load.Run(ctx, cfg, func(ctx context.Context, worker int, i uint64) error {
		allowed, err := subject.do(ctx, keys.at(pick(n, worker, i)))
		if err == nil && !allowed {
			err = errDenied
		}
		return err
	})
	if err == nil && res.Errors > 0 {
		err = fmt.Errorf("%d operations have failed, the first: %w", res.Errors, res.FirstError)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", id, err)
	}
	r.loads[id] = append(r.loads[id], res)
	fmt.Fprintf(os.Stderr, "%v: %.0f/s\n", id, res.PerSecond)
	return nil
}

// fill tells how much memory a key takes, itself included.
func (r *results) fill(ctx context.Context) error {
	n := r.plan.filled
	for _, c := range embedded.contenders {
		if c.name == memoryLimit.name {
			continue // which is the same
		}
		before := heap()
		subject, err := c.start(ctx, job{keys: n, limit: limit})
		if err != nil {
			return err
		}
		for i := range n {
			if _, err := subject.do(ctx, key(i)); err != nil {
				return err
			}
		}
		r.perKey[c.name] = float64(heap()-before) / float64(n)
		subject.stop()
	}
	return nil
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // what had a finalizer
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// each returns a figure of each round.
func (r *results) each(i id, of figure) []float64 {
	var all []float64
	for _, res := range r.loads[i] {
		all = append(all, of(res))
	}
	return all
}

// quotients returns the quotient of a figure of two that were measured in the same round.
func (r *results) quotients(of figure, a, b id) []float64 {
	all, below := r.each(a, of), r.each(b, of)
	if len(all) != len(below) {
		return nil
	}
	for i := range all {
		all[i] /= below[i]
	}
	return all
}

// figure is one of those of a result.
type figure func(load.Result) float64

func perSecond(r load.Result) float64 { return r.PerSecond }
func p50(r load.Result) float64       { return float64(r.P50) }
func p99(r load.Result) float64       { return float64(r.P99) }
func cpu(r load.Result) float64       { return r.CPUPerOperation }
func allocs(r load.Result) float64    { return r.AllocsPerOperation }

// median returns the one in the middle, NaN of none.
func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return math.NaN()
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(n-1)/2] + all[n/2]) / 2
}
