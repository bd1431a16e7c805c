// Command soak runs clients, limiters and subscribers at full speed while their servers
// misbehave, and watches the memory and the goroutines of all of it:
//
//	go run ./internal/soak -duration 10m
//
// Every line is a sample, taken after a garbage collection. The status is 1 where memory or
// goroutines have grown from the second third of the time to the last, where nothing was
// answered between two samples, or where goroutines are left at the end. The servers are mock
// servers in the same process, reached over TCP, so that what they keep counts as well.
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
	flag.DurationVar(&o.duration, "duration", time.Minute, "how long to run")
	flag.DurationVar(&o.every, "every", 10*time.Second, "how long from one sample to the next; a thirtieth of the duration if that is less")
	flag.Uint64Var(&o.seed, "seed", rand.Uint64(), "what keys and faults are drawn from")
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

// sample is what is measured at one instant.
type sample struct {
	heap       uint64 // bytes in use after a collection, stacks included
	goroutines uint64
}

// run is all of it: a load, faults, and samples.
func (o options) run() error {
	before := runtime.NumGoroutine()
	fmt.Fprintf(o.out, "seed %d\n%8s %9s %10s %12s %12s %10s %7s\n", o.seed,
		"time", "heap", "goroutines", "answered/s", "failed/s", "MiB/s made", "faults")
	samples, err := o.measure()
	if err != nil {
		return err
	}
	if err := ended(before); err != nil {
		return err
	}
	fmt.Fprintln(o.out, "no goroutine is left")
	return flat(samples)
}

func (o options) measure() ([]sample, error) {
	l, err := newLoad(o.seed)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.duration)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { l.run(ctx) })
	defer l.close() // what is under way has ended by then
	defer running.Wait()

	start := time.Now()
	last := start
	every := min(o.every, max(o.duration/30, time.Millisecond))
	tick := time.NewTicker(every)
	defer tick.Stop()
	var samples []sample
	var answered, failed, made uint64
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
		a, f := l.answered.Load(), l.failed.Load()
		now := time.Now()
		per := func(n uint64) float64 { return float64(n) / now.Sub(last).Seconds() }
		fmt.Fprintf(o.out, "%6.1f s %5.1f MiB %10d %12.0f %12.0f %10.1f %7d\n", now.Sub(start).Seconds(),
			float64(s.heap)/(1<<20), s.goroutines, per(a-answered), per(f-failed), per(m.TotalAlloc-made)/(1<<20), l.faults.Load())
		if a == answered {
			return samples, fmt.Errorf("nothing was answered for %v", every)
		}
		answered, failed, made, last = a, f, m.TotalAlloc, now
	}
}

// ended waits for goroutines to end that have been told to, and fails if more remain than
// there were.
func ended(before int) error {
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return fmt.Errorf("%d goroutines are left, there were %d", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
	return nil
}
