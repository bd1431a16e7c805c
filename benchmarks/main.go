// Command benchmarks measures throttr beside the other ways to limit rates from Go: clients
// of Redis, and packages that keep their counts in the process. Each goes through the same
// closed loop, one after the other, round after round, and what is compared is what was
// measured in the same round.
//
//	go -C benchmarks run .          # writes RESULTS.md and the charts, in a quarter of an hour
//	go -C benchmarks run . -quick   # prints what it would write, of a few seconds
//
// It needs redis-server in the path, and starts it, and mock servers of this module, as
// processes of their own on free ports. Leave the machine alone meanwhile.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// plan is how much is measured.
type plan struct {
	rounds     int
	duration   time.Duration // of each measurement
	goroutines []int         // that share a client, for the charts
	windows    []int         // how many memory holds, each time it is hit
	filled     int           // keys whose memory is told
}

// warmup is how long each runs before it is measured: connections and windows are opened.
func (p plan) warmup() time.Duration { return max(p.duration/4, 20*time.Millisecond) }

var (
	full = plan{
		rounds: 5, duration: time.Second, goroutines: []int{1, 4, 16, 64, 256, 512},
		windows: []int{1e3, 1e5, 1e7}, filled: 1e6,
	}
	quick = plan{
		rounds: 1, duration: 50 * time.Millisecond, goroutines: []int{1, 64},
		windows: []int{1e3, 1e5}, filled: 1e5,
	}
)

func main() {
	p := full
	flag.IntVar(&p.rounds, "rounds", p.rounds, "how often each is measured")
	flag.DurationVar(&p.duration, "duration", p.duration, "how long each is measured in a round")
	isQuick := flag.Bool("quick", false, "measure little and briefly, print what comes of it, and write nothing")
	flag.Parse()
	if *isQuick {
		p = quick
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, p, !*isQuick); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// run measures, and writes or prints the report.
func run(ctx context.Context, p plan, write bool) error {
	if p.rounds < 1 || p.duration <= 0 {
		return errors.New("there must be a round, and a duration")
	}
	s, err := startServers(ctx)
	if err != nil {
		return err
	}
	results, err := measure(ctx, p, s)
	if err = errors.Join(err, s.stop()); err != nil {
		return err
	}
	if err := results.unmeasured(); err != nil {
		return err
	}
	var report bytes.Buffer
	results.report(&report)
	charts, err := results.charts()
	switch {
	case err != nil:
		return err
	case !write:
		_, err = report.WriteTo(os.Stdout)
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
	return os.WriteFile("RESULTS.md", report.Bytes(), 0o644)
}
