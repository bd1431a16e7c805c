package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// summary writes RESULTS.md: the figures that readers ask for. The report has all others.
func (r *results) summary(w io.Writer) {
	fmt.Fprintf(w, `# Results

Written by `+"`go -C benchmarks run .`"+`, which prints all other figures: medians of %s of %v. Clients and servers share two
cores over loopback. Only ratios carry over to other machines, and not those that wait for memory: 100,000 keys, or one from many goroutines.
Each row says whether the server was real: "real times" is %s.

`, plural(r.plan.rounds, "round"), r.plan.duration, realTimesAre())
	for _, v := range r.versions {
		fmt.Fprintf(w, "- %s\n", v)
	}
	fmt.Fprint(w, "\n![hits per second](charts/hit-throughput.svg)\n\n![99th percentile of hit](charts/hit-p99.svg)\n\n## Hits over a network\n\n")
	var all [][]string
	for _, c := range hit.contenders {
		if c.name == raw || c.name == rawReal {
			continue
		}
		few, most, one := measurement{hit.name, c.name, fewKeys, 64}, measurement{hit.name, c.name, fewKeys, 512}, measurement{hit.name, c.name, 1, 64}
		of := func(m measurement, f figure) float64 { return load.Median(r.each(m, f)) }
		all = append(all, []string{
			c.name, serverOf(c), count(of(few, perSecond)), duration(of(few, p99)), duration(of(few, cpu)),
			count(of(most, perSecond)), count(of(one, perSecond)),
		})
	}
	rows(w, []string{"client", "server", ">1,000 keys, 64 goroutines: hits/s", ">p99", ">CPU/hit", ">512 goroutines: hits/s", ">1 key, 64: hits/s"}, all)
	fmt.Fprint(w, `
rueidis and go-redis send INCR, PEXPIRE NX and PTTL, which are not atomic. redis_rate is a token bucket. CPU is that of the client.

## In the process

`)
	r.algorithmRows(w)
	fmt.Fprintf(w, `
Bytes are those of %s keys of 16 bytes.

## Leases

%d processes with %d callers each hit one key, in windows of %v. *Over* is by how much any window exceeded the limit.

`, count(float64(r.plan.filled)), leaseProcesses, leaseCallers, r.plan.sharedScale)
	for _, k := range []sharing{unlimited, saturating} {
		var all [][]string
		for _, row := range r.sharedRows(k) {
			if name := row[0]; !strings.HasSuffix(name, " on Redis, 1 process") {
				all = append(all, []string{name, row[1], row[3], row[7], row[10]})
			}
		}
		fmt.Fprintf(w, "%s:\n\n", k.title)
		rows(w, []string{"client", ">hits/s", ">p99", ">requests/1,000 hits", ">over"}, all)
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "\"throttr\" is a mock server, Redis is real.\n\n## Keys that come back\n\nMost hits open a window. \"old server\" is a mock server with the times of a real one; Redis is real.\n\n")
	all = nil
	for _, row := range r.sparseRows() {
		if row[1] == fmt.Sprint(r.plan.sparseKeys[len(r.plan.sparseKeys)-1]) {
			all = append(all, []string{row[0], row[2], row[4], row[10]})
		}
	}
	rows(w, []string{"client", ">hits/s", ">p99", ">server time/hit"}, all)
}

// serverOf says which server a contender over a network uses.
func serverOf(c contender) string {
	switch c.name {
	case ours:
		return "mock, which only counts"
	case oursReal:
		if realServer() != "" {
			return "real"
		}
		return "mock, real times"
	default:
		return "Redis"
	}
}
