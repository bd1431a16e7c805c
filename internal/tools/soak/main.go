// Command soak uses clients, rate limits and subscriptions at full speed while faults are injected
// into their servers. It measures the memory and the goroutines of the process:
//
//	go -C internal/tools run ./soak -duration 10m
//
// Each line is a sample that is taken after a garbage collection. The exit status is 1
//
//   - if memory or goroutines grow from the second third of the time to the last,
//   - if no call succeeds between two samples, or
//   - if goroutines remain at the end.
//
// The servers are mock servers in the same process, which are connected by TCP. Their memory
// counts, too.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"
)

func main() {
	o := options{out: os.Stdout}
	flag.DurationVar(&o.duration, "duration", time.Minute, "the `time` to run")
	flag.DurationVar(&o.every, "every", 10*time.Second, "the `time` between samples; at most a thirtieth of -duration")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "the `number` that keys and faults are generated from")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

type options struct {
	duration, every time.Duration
	seed            uint64
	out             io.Writer
}

// sample is one measurement.
type sample struct {
	heap       uint64 // bytes in use after a garbage collection, stacks included
	goroutines uint64
}

// run runs the load, and returns an error if there is a leak.
func (o options) run() error {
	before := runtime.NumGoroutine()
	fmt.Fprintf(o.out, "seed %d\n%8s %9s %10s %12s %12s %11s %7s\n", o.seed,
		"time", "heap", "goroutines", "done/s", "failed/s", "MiB/s alloc", "faults")
	samples, err := o.measure()
	if err != nil {
		return err
	}
	if err := waitForGoroutines(before); err != nil {
		return err
	}
	fmt.Fprintln(o.out, "no goroutines remain")
	return flat(samples)
}

// measure runs the load and returns the samples.
func (o options) measure() ([]sample, error) {
	l, err := newLoad(o.seed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.duration)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx) })
	defer l.close() // after all calls have ended
	defer running.Wait()

	start := time.Now()
	last := start
	every := min(o.every, max(o.duration/30, time.Millisecond))
	tick := time.NewTicker(every)
	defer tick.Stop()
	var samples []sample
	var done, failed, allocated uint64
	for {
		select {
		case <-ctx.Done():
			return samples, nil
		case <-tick.C:
			if ctx.Err() != nil {
				return samples, nil
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		s := sample{heap: m.HeapAlloc + m.StackInuse, goroutines: uint64(runtime.NumGoroutine())}
		samples = append(samples, s)
		d, f := l.done.Load(), l.failed.Load()
		now := time.Now()
		per := func(n uint64) float64 { return float64(n) / now.Sub(last).Seconds() }
		fmt.Fprintf(o.out, "%6.1f s %5.1f MiB %10d %12.0f %12.0f %11.1f %7d\n", now.Sub(start).Seconds(),
			float64(s.heap)/(1<<20), s.goroutines, per(d-done), per(f-failed), per(m.TotalAlloc-allocated)/(1<<20), l.faults.Load())
		if d == done {
			return samples, fmt.Errorf("no call succeeded for %v", every)
		}
		done, failed, allocated, last = d, f, m.TotalAlloc, now
	}
}

// waitForGoroutines waits until there are not more goroutines than before. It returns an error
// if that takes more than 5 s.
func waitForGoroutines(before int) error {
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return fmt.Errorf("%d goroutines remain, there were %d", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
	return nil
}
