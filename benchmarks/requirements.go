package main

import (
	"fmt"
	"math"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// requirement is a bound on the median of a figure.
type requirement struct {
	what     string
	bound    string // "": there is none, the figure is only reported
	holds    func(float64) bool
	measured []float64 // by round; empty: not measured
	format   string
}

func atLeast(what string, bound float64, measured []float64) requirement {
	return requirement{what, fmt.Sprintf("≥ %v", bound), func(m float64) bool { return m >= bound }, measured, "%.2f"}
}

func atMost(what string, bound float64, measured []float64) requirement {
	return requirement{what, fmt.Sprintf("≤ %v", bound), func(m float64) bool { return m <= bound }, measured, "%.2f"}
}

// missing returns an error if a requirement was not measured.
func (r *results) missing() error {
	for _, c := range r.requirements() {
		if m := load.Median(c.measured); math.IsNaN(m) || math.IsInf(m, 0) {
			return fmt.Errorf("not measured: %s", c.what)
		}
	}
	return nil
}

// requirements returns all requirements.
func (r *results) requirements() []requirement {
	at := func(w workload, contender string, keys, goroutines int) measurement {
		return measurement{w.name, contender, keys, goroutines}
	}
	few := func(w workload, contender string, goroutines int) measurement {
		return at(w, contender, fewKeys, goroutines)
	}
	inProcess := func(c contender, keys, goroutines int) measurement { return at(algorithms, c.name, keys, goroutines) }
	buckets := func(c contender) measurement { return at(bucket, c.name, fewKeys, bucketGoroutines) }
	throughput := func(a, b measurement) []float64 { return r.quotients(perSecond, a, b) }
	processor := func(a, b measurement) []float64 { return r.quotients(cpu, a, b) }

	var all []requirement
	ofCode := func(pkg string) {
		for _, b := range codeBenchmarks {
			if b.pkg == pkg {
				all = append(all, atMost(b.what, b.bound, r.ratios[b.pkg+" "+b.name]))
			}
		}
	}
	ofCode("codec")
	var many []int
	for _, n := range r.plan.goroutines {
		if n == 64 || n == 512 {
			many = append(many, n)
		}
	}
	for _, n := range many {
		all = append(all, atLeast(fmt.Sprintf("`increase`, %d goroutines, real times ÷ raw: throughput", n), 0.95, throughput(few(increase, oursReal, n), few(increase, rawReal, n))))
	}
	all = append(all,
		atLeast("`increase`, 64 goroutines ÷ raw: throughput", 0.3, throughput(few(increase, ours, 64), few(increase, raw, 64))),
		atLeast("`increase`, 1 goroutine ÷ raw: throughput", 0.9, throughput(few(increase, ours, 1), few(increase, raw, 1))),
		atLeast("`hit`, 1000 keys, 64 goroutines ÷ raw UPDATE and QUERY: throughput", 0.3, throughput(few(hit, ours, 64), few(hit, raw, 64))),
		atLeast("`hit`, 1000 keys, 64 goroutines, real times ÷ raw UPDATE and QUERY: throughput", 0.95, throughput(few(hit, oursReal, 64), few(hit, rawReal, 64))),
		atLeast("`hit`, 1 key, 64 goroutines ÷ 1 goroutine: throughput", 20, throughput(at(hit, ours, 1, 64), at(hit, ours, 1, 1))),
	)
	for _, w := range []workload{increase, query, hit} {
		all = append(all, atMost("`"+w.name+"`, 64 goroutines: allocations per operation", 0, hundredths(r.each(few(w, ours, 64), allocs))))
	}
	for _, n := range many {
		all = append(all, atMost(fmt.Sprintf("`increase`, %d goroutines ÷ rueidis INCR: CPU per operation", n), 0.9,
			processor(few(increase, ours, n), few(increase, rueidisIncrease.name, n))))
	}
	for _, n := range many {
		all = append(all, atMost(fmt.Sprintf("`hit`, 1000 keys, %d goroutines ÷ rueidis INCR, PEXPIRE NX and PTTL: CPU per operation", n), 0.8,
			processor(few(hit, ours, n), few(hit, rueidisHit.name, n))))
	}
	for _, keys := range []int{fewKeys, 1} {
		bound := 1.0
		if keys == 1 {
			bound = 5
		}
		for _, n := range many {
			all = append(all, atLeast(fmt.Sprintf("`hit` on Redis, %s, %d goroutines ÷ rueidis INCR, PEXPIRE NX and PTTL: throughput", plural(keys, "key"), n), bound,
				throughput(at(hit, redisHit.name, keys, n), at(hit, rueidisHit.name, keys, n))))
		}
	}
	all = append(all,
		atLeast("`hit`, 1000 keys, 64 goroutines ÷ redis_rate: throughput", 2.5, throughput(few(hit, ours, 64), few(hit, redisRate.name, 64))),
		atLeast("token bucket, 1000 keys, 64 goroutines ÷ redis_rate: throughput", 1.5, throughput(buckets(redisBucket), buckets(redisRate))),
		atMost("token bucket, 1000 keys, 64 goroutines ÷ redis_rate: CPU per hit, of the process and of Redis", 1, r.bothCPU(buckets(redisBucket), buckets(redisRate))),
	)
	all = append(all, r.redisTakesRequirements()...)
	all = append(all, r.algorithmRequirements()...)
	all = append(all, r.middlewareRequirements()...)
	all = append(all, r.sparseRequirements()...)
	perKey := atMost(fmt.Sprintf("`memory`, bytes per key, of %d keys of 16 bytes, the key included", r.plan.filled), 95, []float64{r.perKey[fixedWindow.name]})
	perKey.format = "%.0f"
	all = append(all, perKey)
	for _, n := range r.plan.windows {
		var ns []float64
		for _, s := range r.each(inProcess(fixedWindow, n, 1), perSecond) {
			ns = append(ns, 1e9/s)
		}
		all = append(all, requirement{what: fmt.Sprintf("`RateLimit` on `memory`, ns per hit, %d keys, 1 goroutine", n), measured: ns, format: "%.0f"})
	}
	ofCode("memory")
	return append(all, r.leaseRequirements()...)
}

// hundredths rounds down to hundredths: the runtime itself allocates now and then.
func hundredths(all []float64) []float64 {
	for i := range all {
		all[i] = float64(int(all[i]*100)) / 100
	}
	return all
}
