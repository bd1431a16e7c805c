// Command benchmarks compares throttr with other ways to limit rates from Go: clients of Redis,
// and packages that count in the process. All of them run in the same closed loop, one after
// the other, in several rounds. A ratio compares two measurements of the same round.
//
//	go -C benchmarks run .          # writes RESULTS.md and the charts, in about half an hour
//	go -C benchmarks run . -quick   # prints results of short measurements, in about two minutes
//	go -C benchmarks run . -outages   # prints what an outage of the store costs, in five minutes
//
// It needs Go 1.26 and redis-server. It starts redis-server, and mock servers of this module, as
// processes on free ports. The machine should do nothing else meanwhile.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// plan says how much is measured.
type plan struct {
	rounds      int
	duration    time.Duration // of each measurement
	goroutines  []int         // that share a client, for the charts
	windows     []int         // numbers of windows in memory
	filled      int           // number of keys whose memory is measured
	sparseKeys  []int         // numbers of keys that are hit seldom
	sparse      time.Duration // of each measurement of them
	shared      time.Duration // of each measurement of a limit that processes share
	sharedScale time.Duration // of such limits
}

// realTimesAre describes the server of real times.
func realTimesAre() string {
	if realServer() != "" {
		return "a real Throttr server"
	}
	return "a mock server that takes as long for each request as a real Throttr server on a quiet machine: 6 µs, or 10 µs for one that is alone"
}

// warmup returns how long each contender runs before it is measured, to open connections and
// windows.
func (p plan) warmup() time.Duration { return max(p.duration/4, 20*time.Millisecond) }

// estimate returns roughly how long the plan takes: some 20 measurements for each number of
// goroutines, and the benchmarks of other packages.
func (p plan) estimate() time.Duration {
	round := 24*p.duration*time.Duration(len(p.goroutines)) + 20*time.Second
	round += time.Duration(len(algorithmLoads)*len(algorithms.contenders)+len(middlewareLoads)*len(middlewares.contenders)) * (p.duration + p.warmup())
	round += time.Duration(2*len(redisTakesLoads)*len(redisTakes.contenders)) * (p.duration + p.warmup())
	for _, keys := range p.sparseKeys {
		round += p.sparse + 15*time.Second + time.Duration(keys)*time.Millisecond/2
	}
	round += p.estimateLeases()
	return (time.Duration(p.rounds)*round + 30*time.Second).Round(30 * time.Second)
}

// estimateLeases returns roughly how long a round of the measurements of leases takes.
func (p plan) estimateLeases() (round time.Duration) {
	for _, k := range sharings {
		for _, c := range sharers {
			switch {
			case !c.measured(k):
				continue
			case k.limited:
				round += p.shared
			default:
				round += p.duration
			}
			round += startTime + p.warmup() + 2*p.sharedScale
		}
	}
	return round
}

var (
	full = plan{
		rounds: 5, duration: time.Second, goroutines: []int{1, 4, 16, 64, 256, 512},
		windows: []int{1e3, 1e5, 1e7}, filled: 1e6, sparseKeys: []int{5_000, 20_000}, sparse: 4 * time.Second,
		shared: 4 * time.Second, sharedScale: time.Second,
	}
	quick = plan{
		rounds: 1, duration: 50 * time.Millisecond, goroutines: []int{1, 64},
		windows: []int{1e3, 1e5}, filled: 1e5, sparseKeys: []int{500}, sparse: time.Second,
		shared: 1500 * time.Millisecond, sharedScale: 500 * time.Millisecond,
	}
)

func main() {
	if text, ok := os.LookupEnv(assignmentVariable); ok {
		if err := runAssignment(context.Background(), text, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "benchmarks:", err)
			os.Exit(1)
		}
		return
	}
	p := full
	flag.IntVar(&p.rounds, "rounds", p.rounds, "the `number` of rounds")
	flag.DurationVar(&p.duration, "duration", p.duration, "the `time` of each measurement in a round")
	isQuick := flag.Bool("quick", false, "measure briefly, print the results, and write no files")
	outages := flag.Bool("outages", false, "measure services whose store is away, and print the results")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Usage: go -C benchmarks run . [flags]\n\n"+
			"It needs Go 1.26 and redis-server, takes about %v, and writes RESULTS.md and the charts.\n\n", full.estimate())
		flag.PrintDefaults()
	}
	flag.Parse()
	if *isQuick {
		p = quick
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	action := func() error { return run(ctx, p, !*isQuick) }
	if *outages {
		action = func() error { return runOutages(ctx) }
	}
	if err := action(); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// run measures, and writes or prints the results.
func run(ctx context.Context, p plan, write bool) error {
	if p.rounds < 1 || p.duration <= 0 {
		return errors.New("-rounds and -duration must be more than 0")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		return fmt.Errorf("redis-server is needed, such as from apt-get install redis-server: %w", err)
	}
	fmt.Fprintf(os.Stderr, "this needs Go 1.26 and redis-server, and takes about %v\n", p.estimate())
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	results, err := measure(ctx, p, s)
	if err = errors.Join(err, s.stop()); err != nil {
		return err
	}
	if err := results.missing(); err != nil {
		return err
	}
	results.report(os.Stdout)
	charts, err := results.charts()
	if err != nil || !write {
		return err
	}
	if err := os.MkdirAll("charts", 0o755); err != nil {
		return err
	}
	for name, svg := range charts {
		if err := os.WriteFile(name, svg, 0o644); err != nil {
			return err
		}
	}
	var summary bytes.Buffer
	results.summary(&summary)
	return os.WriteFile("RESULTS.md", summary.Bytes(), 0o644)
}
