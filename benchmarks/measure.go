package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/throttr-go/throttr/internal/tools/load"
)

const (
	fewKeys  = 1000
	manyKeys = 100_000
)

// bucketGoroutines is the number of goroutines that hit token buckets, and that query counters.
const bucketGoroutines = 64

// oneKeyGoroutines are the numbers of goroutines that hit one key.
var oneKeyGoroutines = []int{1, 64, 512}

// ballast is memory that the process holds, as a service does. Without it, the garbage collector
// would run all the time, at the cost of contenders that allocate.
var ballast = make([]byte, 64<<20)

// errDenied says that the limit was reached.
var errDenied = errors.New("an operation was denied: use a shorter -duration")

// measurement identifies a measurement.
type measurement struct {
	workload   string
	contender  string
	keys       int
	goroutines int
}

// String describes the measurement.
func (m measurement) String() string {
	return fmt.Sprintf("%s of %s, %d keys, %d goroutines", m.workload, m.contender, m.keys, m.goroutines)
}

// results are the results of all measurements.
type results struct {
	plan     plan
	loads    map[measurement][]load.Result // by round
	perKey   map[string]float64            // bytes per key, by contender
	ratios   map[string][]float64          // by round, of codeBenchmarks
	redisCPU map[measurement][]float64     // by round: nanoseconds of Redis per operation; of sharers: of their server
	shared   map[measurement][]sharedFigures
	windows  map[measurement][]windows // by round, of sparse keys
	conns    int                       // that the last client of Throttr has used
	versions []string
}

// newResults returns results without measurements.
func newResults(p plan) *results {
	return &results{
		plan: p, loads: map[measurement][]load.Result{}, perKey: map[string]float64{}, ratios: map[string][]float64{},
		redisCPU: map[measurement][]float64{}, shared: map[measurement][]sharedFigures{},
		windows: map[measurement][]windows{},
	}
}

// measure measures all contenders.
func measure(ctx context.Context, p plan, s *servers) (*results, error) {
	defer runtime.KeepAlive(ballast)
	r := newResults(p)
	r.versions = versions(ctx)
	if err := r.fill(ctx, algorithms); err != nil {
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

// round measures everything once. Contenders of a workload follow each other.
func (r *results) round(ctx context.Context, s *servers) error {
	type step struct {
		workload
		keys, goroutines int
	}
	var steps []step
	for _, w := range []workload{increase, hit} {
		for _, n := range r.plan.goroutines {
			steps = append(steps, step{w, fewKeys, n})
		}
	}
	steps = append(steps, step{query, fewKeys, bucketGoroutines}, step{bucket, fewKeys, bucketGoroutines})
	for _, n := range oneKeyGoroutines {
		steps = append(steps, step{hit, 1, n})
	}
	for _, n := range redisTakesLoads {
		steps = append(steps, step{redisTakes, fewKeys, n}, step{redisTakes, 1, n})
	}
	for _, at := range algorithmLoads {
		steps = append(steps, step{algorithms, at.keys, at.goroutines})
	}
	for _, at := range middlewareLoads {
		steps = append(steps, step{middlewares, at.keys, at.goroutines})
	}
	for _, n := range r.plan.windows {
		if n != manyKeys { // algorithmLoads has them: once in a round, as quotients are of rounds
			steps = append(steps, step{workload{algorithms.name, []contender{fixedWindow}}, n, 1})
		}
	}
	for _, n := range r.plan.sparseKeys {
		steps = append(steps, step{sparse, n, sparseGoroutines})
	}
	for _, at := range steps {
		if err := r.compare(ctx, s, at.workload, at.keys, at.goroutines); err != nil {
			return err
		}
	}
	if err := r.compareLeases(ctx, s); err != nil {
		return err
	}
	return r.runCodeBenchmarks(ctx)
}

// compare measures all contenders of a workload.
func (r *results) compare(ctx context.Context, s *servers, w workload, keys, goroutines int) error {
	for _, c := range w.contenders {
		if err := r.measure(ctx, s, w.name, c, keys, goroutines); err != nil {
			return err
		}
	}
	return nil
}

// measure starts a contender, measures it and stops it.
func (r *results) measure(ctx context.Context, s *servers, workload string, c contender, n, goroutines int) error {
	m := measurement{workload, c.name, n, goroutines}
	keys := keySet(n).Keys()
	conditions := setup{servers: s, keys: n, limit: limit, scale: scale, goroutines: goroutines, conns: r.conns}
	if workload == sparse.name {
		keys = newSparseKeys(n)
		conditions.limit, conditions.scale = sparseLimit, sparseScale
	}
	if workload == algorithms.name {
		conditions.limit, conditions.scale = algorithmLimit, algorithmScale
	}
	instance, err := c.start(ctx, conditions)
	if err != nil {
		return fmt.Errorf("%v: %w", m, err)
	}
	defer instance.stop()
	if err := instance.touch(ctx, keys, goroutines); err != nil {
		return fmt.Errorf("%v: %w", m, err)
	}
	cfg := load.Config{Goroutines: goroutines, Warmup: r.plan.warmup(), Duration: r.plan.duration}
	if workload == sparse.name {
		cfg.Warmup, cfg.Duration = 2*sparseScale, r.plan.sparse
	}
	if workload == algorithms.name {
		instance.run = instance.inProcess
	}
	runtime.GC()
	before := s.redisCPU()
	var res load.Result
	if instance.run != nil {
		res, err = instance.run(ctx, cfg, keys)
	} else {
		res, err = load.Run(ctx, cfg, func(ctx context.Context, worker int, i uint64) error {
			allowed, err := instance.do(ctx, keys.Pick(worker, i))
			if err == nil && !allowed && workload != sparse.name {
				err = errDenied
			}
			return err
		})
	}
	if err == nil {
		err = res.Failure()
	}
	if err != nil {
		return fmt.Errorf("%v: %w", m, err)
	}
	r.loads[m] = append(r.loads[m], res)
	if instance.windows != nil {
		r.windows[m] = append(r.windows[m], *instance.windows)
	}
	if instance.conns != nil {
		r.conns = instance.conns()
	}
	used, elapsed := float64(s.redisCPU()-before), cfg.Warmup+res.Elapsed
	r.redisCPU[m] = append(r.redisCPU[m], used/(res.PerSecond*elapsed.Seconds()))
	fmt.Fprintf(os.Stderr, "%v: %.0f/s\n", m, res.PerSecond)
	return nil
}

// fill measures the memory that a key takes with each contender of a workload, the key included.
func (r *results) fill(ctx context.Context, w workload) error {
	n := r.plan.filled
	for _, c := range w.contenders {
		before := heap()
		instance, err := c.start(ctx, setup{keys: n, limit: limit, scale: scale})
		if err != nil {
			return err
		}
		for i := range n {
			if _, err := instance.do(ctx, keySet(n).Key(i)); err != nil {
				return err
			}
		}
		r.perKey[c.name] = float64(heap()-before) / float64(n)
		instance.stop()
	}
	return nil
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // objects with finalizers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// each returns a figure of each round.
func (r *results) each(m measurement, f figure) []float64 { return each(r.loads[m], f) }

// each returns a figure of each value.
func each[T any](values []T, f func(T) float64) (all []float64) {
	for _, v := range values {
		all = append(all, f(v))
	}
	return all
}

// quotients returns the quotient of a figure of two measurements in each round.
func (r *results) quotients(f figure, a, b measurement) []float64 {
	all, divisors := r.each(a, f), r.each(b, f)
	if len(all) != len(divisors) {
		return nil
	}
	for i := range all {
		all[i] /= divisors[i]
	}
	return all
}

// bothCPU returns the quotient of the CPU time per operation of two measurements in each round: that of
// the process and that of Redis.
func (r *results) bothCPU(a, b measurement) []float64 {
	all, divisors := r.each(a, cpu), r.each(b, cpu)
	if len(all) != len(divisors) {
		return nil
	}
	for i := range all {
		all[i] = (all[i] + r.redisCPU[a][i]) / (divisors[i] + r.redisCPU[b][i])
	}
	return all
}

// figure is a number in a result.
type figure = func(load.Result) float64

func perSecond(r load.Result) float64 { return r.PerSecond }
func p50(r load.Result) float64       { return float64(r.P50) }
func p99(r load.Result) float64       { return float64(r.P99) }
func p999(r load.Result) float64      { return float64(r.P999) }
func cpu(r load.Result) float64       { return r.CPUPerOperation }
func allocs(r load.Result) float64    { return r.AllocsPerOperation }
