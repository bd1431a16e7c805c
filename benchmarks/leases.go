package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/tools/load"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/redisbackend"
)

const (
	leaseProcesses = 8 // that share one key
	leaseCallers   = 4 // in each of them
	// fastSample is how many hits there are for each hit whose time is taken, if hits are as short as a
	// reading of the clock. Otherwise the time of each hit is taken.
	fastSample = 64
	// sharedLimit is the limit that the processes share for each second, if it is to be reached.
	sharedLimit = 50_000
)

// sharing is a way in which processes share a key.
type sharing struct {
	workload string
	limited  bool    // to sharedLimit; otherwise no hit is denied
	demand   float64 // in parts of the limit; 0: each caller hits as often as it can
	title    string
}

var (
	unlimited  = sharing{"shared key", false, 0, "A limit that is not reached"}
	saturating = sharing{"shared key, saturated", true, 0, "50,000 per second, and callers that hit as often as they can"}
	steady     = sharing{"shared key, 1.2 times the limit", true, 1.2, "50,000 per second, and 1.2 times as many hits"}
	sharings   = []sharing{unlimited, saturating, steady}
)

// sharer is a way to hit a key that processes share.
type sharer struct {
	name      string
	does      string
	server    func(*servers) *process // nil: none
	processes int
	sample    int // hits for each hit whose time is taken
	open      openStore
}

// The sharers.
var (
	leasesOnThrottr = sharer{"leases on throttr", "package `lease` with its defaults, on a mock server", onMock, leaseProcesses, fastSample, withLeases(mockBackend)}
	onThrottr       = sharer{"throttr", "the same backend without leases: hits of a process at one time share requests", onMock, leaseProcesses, 1, mockBackend}
	leasesOnRedis   = sharer{"leases on Redis", "package `lease` with its defaults, on package `redisbackend`", onRedis, leaseProcesses, fastSample, withLeases(redisStore)}
	onOwnRedis      = sharer{"redisbackend", "the same backend without leases", onRedis, leaseProcesses, 1, redisStore}

	leasesInOne      = sharer{"leases on throttr, 1 process", "all callers in one process", onMock, 1, fastSample, withLeases(mockBackend)}
	leasesInOneRedis = sharer{"leases on Redis, 1 process", "all callers in one process", onRedis, 1, fastSample, withLeases(redisStore)}
	memoryInOne      = sharer{"memory, 1 process", "package `memory`, with as many callers; it shares nothing with other processes", nil, 1, fastSample, memoryStore}

	sharers = []sharer{leasesOnThrottr, onThrottr, leasesOnRedis, onOwnRedis, leasesInOne, leasesInOneRedis, memoryInOne}
)

// Keys that are not hot: each has some ten hits per second.
const (
	coldKeys       = 20_000
	coldGoroutines = 64
)

// cold compares hits on keys that are not hot, with leases and without.
var cold = workload{"hit of cold keys", []contender{throttrHit("throttr", mock), leasedHit}}

var leasedHit = contender{
	name: "throttr with leases",
	does: "the same with package `lease`",
	start: func(ctx context.Context, s setup) (*instance, error) {
		b, closeAll, err := withLeases(mockBackend)(ctx, s)
		if err != nil {
			return nil, err
		}
		return &instance{do: hits(b, s), close: closeAll}, nil
	},
}

// measured reports whether a sharer is measured with a sharing: one process has no limit that it shares.
func (c sharer) measured(k sharing) bool { return c.processes > 1 || !k.limited }

// callers returns how many callers each process has.
func (c sharer) callers() int { return leaseProcesses * leaseCallers / c.processes }

func (c sharer) measurement(k sharing) measurement {
	return measurement{k.workload, c.name, 1, leaseProcesses * leaseCallers}
}

func onMock(s *servers) *process  { return s.shared }
func onRedis(s *servers) *process { return s.redis }

// openStore opens a backend. Close closes what is below it.
type openStore func(ctx context.Context, s setup) (b throttr.Backend, close func(), err error)

func mockBackend(ctx context.Context, s setup) (throttr.Backend, func(), error) {
	client, err := connect(ctx, s.servers.mock.addr)
	if err != nil {
		return nil, nil, err
	}
	return client.Backend(), func() { client.Close() }, nil
}

func redisStore(_ context.Context, s setup) (throttr.Backend, func(), error) {
	client, err := connectRueidis(s)
	if err != nil {
		return nil, nil, err
	}
	return redisbackend.New(client), client.Close, nil
}

func memoryStore(_ context.Context, s setup) (throttr.Backend, func(), error) {
	m := newMemory(s)
	return m, func() { m.Close() }, nil
}

func withLeases(open openStore) openStore {
	return func(ctx context.Context, s setup) (throttr.Backend, func(), error) {
		b, closeStore, err := open(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		leases := lease.New(b)
		return leases, func() { leases.Close(); closeStore() }, nil
	}
}

// sharedFigures are figures of a key that processes share. What cannot be said is NaN.
type sharedFigures struct {
	requests float64 // per 1,000 hits
	allowed  float64 // requests per 1,000 allowed hits
	used     float64 // part of the limit, in the windows that the measurement contains
	over     float64 // the most hits by which any window exceeded the limit
	windows  int     // that were compared with the limit
	hits     uint64
}

// figuresOf returns a figure of each round.
func (r *results) figuresOf(m measurement, f func(sharedFigures) float64) []float64 {
	return each(r.shared[m], f)
}

func requestsOfAllowed(s sharedFigures) float64 { return s.allowed }
func usedOf(s sharedFigures) float64            { return s.used }
func overOf(s sharedFigures) float64            { return s.over }

// leaseRequirements returns the requirements on leases.
func (r *results) leaseRequirements() (all []requirement) {
	for _, on := range []struct{ leases, inOne, plain sharer }{{leasesOnThrottr, leasesInOne, onThrottr}, {leasesOnRedis, leasesInOneRedis, onOwnRedis}} {
		name := on.leases.name
		fast := on.leases.measurement(unlimited)
		all = append(all,
			atLeast(fmt.Sprintf("%s, 8 processes ÷ %s: throughput", name, on.plain.name), 100, r.quotients(perSecond, fast, on.plain.measurement(unlimited))),
			atLeast(name+", 8 processes ÷ memory, 1 process: throughput", 0.5, r.quotients(perSecond, fast, memoryInOne.measurement(unlimited))),
			atLeast(on.inOne.name+" ÷ memory, 1 process: throughput", 0.5, r.quotients(perSecond, on.inOne.measurement(unlimited), memoryInOne.measurement(unlimited))),
			atMost(name+", limit not reached: requests per 1,000 hits", 20, r.figuresOf(fast, requestsOfAllowed)),
			atMost(name+", saturated: requests per 1,000 allowed hits", 20, r.figuresOf(on.leases.measurement(saturating), requestsOfAllowed)),
			atLeast(name+", saturated: used part of the limit", 0.99, r.figuresOf(on.leases.measurement(saturating), usedOf)),
			atLeast(name+", 1.2 times the limit: used part of the limit", 0.99, r.figuresOf(on.leases.measurement(steady), usedOf)),
		)
		var over []float64
		for _, k := range sharings {
			over = append(over, r.figuresOf(on.leases.measurement(k), overOf)...)
		}
		over = []float64{slices.Max(append(over, math.Inf(-1)))} // of all rounds, and not their median
		all = append(all, atMost(name+": hits over the limit, in the worst of all windows", 0, over))
	}
	at := func(c contender) measurement { return measurement{cold.name, c.name, coldKeys, coldGoroutines} }
	return append(all, atLeast(fmt.Sprintf("`hit`, %d keys, %d goroutines, with leases ÷ without: throughput", coldKeys, coldGoroutines), 0.97,
		r.quotients(perSecond, at(cold.contenders[1]), at(cold.contenders[0]))))
}

// reportLeases writes the section on leases.
func (r *results) reportLeases(w io.Writer) {
	fmt.Fprintf(w, `%d processes with %d callers each hit one key, in windows of %v. "1 process" has as many callers. With leases and in
memory, callers that hit as often as they can take the time of one hit in %d; the others take that of each. It contains a
reading of the clock. CPU is that of all client processes, and that of the server. *Used* is the part of the limit that was
allowed in the windows that the measurement contains. *Over* is the most hits by which any window exceeded the limit, by the
logs of the processes.

`, leaseProcesses, leaseCallers, r.plan.sharedScale, fastSample)
	for _, k := range sharings {
		fmt.Fprintf(w, "### %s\n\n", k.title)
		rows(w, []string{"client", ">hits/s", ">p50", ">p99", ">p99.9", ">CPU/hit", ">of the server", ">requests/1,000 hits", ">requests/1,000 allowed", ">used", ">over"}, r.sharedRows(k))
		fmt.Fprintln(w)
	}
	hits, windows := uint64(0), 0
	for _, c := range sharers {
		for _, k := range sharings {
			for _, s := range r.shared[c.measurement(k)] {
				if c.sample == fastSample && c.server != nil {
					hits, windows = hits+s.hits, windows+s.windows
				}
			}
		}
	}
	fmt.Fprintf(w, "Processes with leases made %s hits in %d windows.\n\n", count(float64(hits)), windows)
	var all [][]string
	for _, c := range sharers {
		all = append(all, []string{c.name, c.does})
	}
	rows(w, []string{"client", "is"}, all)
	fmt.Fprintln(w)
}

// sharedRows returns the figures of all sharers.
func (r *results) sharedRows(k sharing) (all [][]string) {
	percent := func(f float64) string {
		if math.IsNaN(f) {
			return "-"
		}
		return fmt.Sprintf("%.1f %%", 100*f)
	}
	for _, c := range sharers {
		if !c.measured(k) {
			continue
		}
		m := c.measurement(k)
		of := func(f figure) float64 { return load.Median(r.each(m, f)) }
		figure := func(f func(sharedFigures) float64) float64 { return load.Median(r.figuresOf(m, f)) }
		over, used := "-", "-"
		if k.limited {
			over, used = fmt.Sprintf("%.0f", slices.Max(r.figuresOf(m, overOf))), percent(figure(usedOf))
		}
		all = append(all, []string{
			c.name, count(of(perSecond)), duration(of(p50)), duration(of(p99)), duration(of(p999)), duration(of(cpu)), duration(load.Median(r.redisCPU[m])),
			decimal(figure(func(s sharedFigures) float64 { return s.requests })), decimal(figure(requestsOfAllowed)), used, over,
		})
	}
	return all
}
