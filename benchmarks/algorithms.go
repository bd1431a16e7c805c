package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/tools/load"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// The limit and the scale of algorithms. The limit is never reached.
const (
	algorithmLimit = 1 << 27
	algorithmScale = time.Minute
)

// A sliding log has the time of each hit, so it can't have the limit and the scale of the others.
const (
	logLimit = 1 << 22
	logScale = 100 * time.Millisecond
)

// newMemory returns a backend with defaults and room for the keys.
func newMemory(s setup, opts ...memory.Option) *memory.Backend {
	return memory.New(append(opts, memory.WithMaxKeys(max(memory.DefaultMaxKeys, 2*s.keys)))...)
}

// algorithm returns RateLimit on a backend in memory.
func algorithm(name string, a window.Algorithm, does string) contender {
	return contender{name: name, does: does, start: func(_ context.Context, s setup) (*instance, error) {
		if a == window.SlidingLog && s.limit > logLimit {
			s.limit, s.scale = logLimit, logScale
		}
		m := newMemory(s, memory.WithMaxLog(logLimit), memory.WithMaxTimes(1<<28))
		return &instance{do: hits(m, s, throttr.WithAlgorithm(a)), close: func() { m.Close() }}, nil
	}}
}

var (
	fixedWindow = algorithm("fixed window", window.FixedWindow, "`RateLimit.Hit` in memory with `window.FixedWindow`")
	tokenBucket = algorithm("token bucket", window.TokenBucket, "the same with `window.TokenBucket`: GCRA, in bounded number, with the decision, the "+
		"tokens that are left, the time to retry after, and when it is full")
	slidingWindow = algorithm("sliding window", window.SlidingWindow, "the same with `window.SlidingWindow`: two aligned windows")
	slidingLog    = algorithm("sliding log", window.SlidingLog, fmt.Sprintf("the same with `window.SlidingLog`: the time of each hit of the last %v", logScale))

	// The algorithms of package memory, and the rolling ones of other packages.
	ownAlgorithms   = []contender{fixedWindow, tokenBucket, slidingWindow, slidingLog}
	otherAlgorithms = []contender{xTimeRate, xTimeRateSyncMap, throttledGCRA, ulule}
	algorithms      = workload{"hit in the process", slices.Concat(ownAlgorithms, []contender{goLimiter}, otherAlgorithms)}
)

var xTimeRateSyncMap = contender{
	name: "x/time/rate, sync.Map", module: "golang.org/x/time",
	does: "a limiter for each key in a sync.Map",
	start: func(_ context.Context, s setup) (*instance, error) {
		var limiters sync.Map
		return &instance{do: func(_ context.Context, key string) (bool, error) {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, rate.NewLimiter(rate.Limit(float64(s.limit)/s.scale.Seconds()), s.limit))
			}
			return l.(*rate.Limiter).Allow(), nil
		}}, nil
	},
}

// algorithmLoads are the loads with which algorithms are measured.
var algorithmLoads = []struct{ keys, goroutines int }{{1, 1}, {1, 2}, {manyKeys, 1}, {manyKeys, 2}}

// algorithmRequirements returns what algorithms in memory must hold.
func (r *results) algorithmRequirements() (all []requirement) {
	for _, at := range algorithmLoads {
		of := func(c contender) measurement { return measurement{algorithms.name, c.name, at.keys, at.goroutines} }
		load := plural(at.keys, "key") + ", " + plural(at.goroutines, "goroutine")
		for _, c := range ownAlgorithms {
			all = append(all, atMost(fmt.Sprintf("`memory`, %s, %s ÷ the fastest of other packages: time", c.name, load), 1, r.timeToFastest(of(c))))
		}
		all = append(all, atMost("`memory`, token bucket, "+load+" ÷ fixed window: time", 1, r.quotients(perSecond, of(fixedWindow), of(tokenBucket))))
	}
	for _, c := range []struct {
		own, other       contender
		keys, goroutines int
		bound            float64
	}{
		{fixedWindow, goLimiter, 1, 1, 2.6}, {fixedWindow, goLimiter, 1, 2, 3}, {fixedWindow, goLimiter, manyKeys, 2, 2.8},
		{tokenBucket, xTimeRate, 1, 1, 1.6}, {tokenBucket, xTimeRate, manyKeys, 2, 3.5},
	} {
		of := func(name string) measurement { return measurement{algorithms.name, name, c.keys, c.goroutines} }
		all = append(all, atLeast(fmt.Sprintf("`memory`, %s, %s, %s ÷ %s: throughput", c.own.name, plural(c.keys, "key"), plural(c.goroutines, "goroutine"), c.other.name),
			c.bound, r.quotients(perSecond, of(c.own.name), of(c.other.name))))
	}
	for _, c := range ownAlgorithms {
		m := measurement{algorithms.name, c.name, manyKeys, 2}
		all = append(all, atMost("`memory`, "+c.name+": allocations per hit", 0, hundredths(r.each(m, allocs))))
	}
	return all
}

// timeToFastest returns the time of a hit, divided by that of the fastest other package, in each round.
func (r *results) timeToFastest(m measurement) []float64 {
	all := r.each(m, func(load.Result) float64 { return 0 })
	for _, c := range otherAlgorithms {
		other := m
		other.contender = c.name
		quotients := r.quotients(perSecond, other, m)
		if len(quotients) != len(all) {
			return nil
		}
		for i, q := range quotients {
			all[i] = max(all[i], q)
		}
	}
	return all
}

// reportAlgorithms writes how long hits take with each algorithm, and what the figures mean.
func (r *results) reportAlgorithms(w io.Writer) {
	r.algorithmRows(w)
	fmt.Fprintf(w, `
The times are those of a hit that is allowed, with a limit of %d in %v, and of %d in %v for the log. They include
the choice of a key at random, which takes some ns, and with several goroutines the waiting for each other. Bytes per key are
the heap after a collection, less that before, of %d keys of 16 bytes, the keys included, after one hit on each. A sliding log takes 64 bytes more for every seven hits in the last scale.
`, algorithmLimit, algorithmScale, logLimit, logScale, r.plan.filled)
}

// algorithmRows writes how long hits take with each algorithm.
func (r *results) algorithmRows(w io.Writer) {
	titles, all := r.timeRows(algorithms, "algorithm or package", algorithmLoads)
	for i, c := range algorithms.contenders {
		m := measurement{algorithms.name, c.name, manyKeys, 2}
		all[i] = append(all[i], fmt.Sprintf("%.2f", load.Median(r.each(m, allocs))), fmt.Sprintf("%.0f", r.perKey[c.name]))
	}
	rows(w, append(titles, ">allocations/hit", ">bytes/key"), all)
}

// timeRows returns how long an operation takes with each contender and load.
func (r *results) timeRows(w workload, title string, loads []struct{ keys, goroutines int }) (titles []string, all [][]string) {
	titles, all = []string{title}, make([][]string, len(w.contenders))
	for i, c := range w.contenders {
		all[i] = []string{c.name}
	}
	for _, at := range loads {
		titles = append(titles, fmt.Sprintf(">%s, %s", plural(at.keys, "key"), plural(at.goroutines, "goroutine")))
		for i, c := range w.contenders {
			m := measurement{w.name, c.name, at.keys, at.goroutines}
			all[i] = append(all[i], fmt.Sprintf("%.0f ns", float64(at.goroutines)*1e9/load.Median(r.each(m, perSecond))))
		}
	}
	return titles, all
}
