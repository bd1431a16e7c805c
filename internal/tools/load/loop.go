// Package load measures the speed of an operation in a closed loop: a number of goroutines
// repeat it for a while, each waiting for one operation to end before it starts the next. The
// result says how many operations per second there were, how long they took, and what they
// cost the process.
//
//	res, err := load.Run(ctx, load.Config{Goroutines: 64, Duration: 10 * time.Second},
//		func(ctx context.Context, worker int, i uint64) error { … })
//
// The loop does not disturb what it measures: it allocates nothing, and no two goroutines
// write to the same memory.
//
// [Raw] is such a loop without a client: it writes encoded frames and counts the bytes of the
// responses. It shows how fast servers and network are. [Compare] measures several loops in
// turns, so that changes on the machine affect all of them.
package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Operation is what is measured. Worker is the number of the goroutine that calls it, from 0,
// and i the number of its earlier calls, those during the warm-up included.
type Operation func(ctx context.Context, worker int, i uint64) error

// Config says how an operation is measured.
type Config struct {
	Goroutines int           // that repeat it, at least 1
	Warmup     time.Duration // before operations count
	Duration   time.Duration // while operations count, more than 0
}

// phase says how far a measurement is.
type phase = uint32

const (
	warming phase = iota
	counting
	over
)

// Run repeats op and returns when all operations have ended. Operations count that end within
// the duration. If ctx ends first, Run returns the result until then and the cause.
func Run(ctx context.Context, cfg Config, op Operation) (Result, error) {
	return RunLoops(ctx, cfg, func(ctx context.Context, worker int, m *Meter) {
		base := time.Now()
		var start time.Duration
		for i := uint64(0); !m.Over(); i++ {
			err := op(ctx, worker, i)
			now := time.Since(base)
			if err != nil {
				m.Fail(1, err)
			} else {
				m.Add(1, now-start)
			}
			start = now
		}
	})
}

// Loop is the loop of one goroutine. It reports its operations to m and returns when m is
// over. Worker is the number of the goroutine, from 0.
type Loop func(ctx context.Context, worker int, m *Meter)

// RunLoops is [Run] for loops that do not simply repeat an operation.
func RunLoops(ctx context.Context, cfg Config, loop Loop) (Result, error) {
	if cfg.Goroutines < 1 || cfg.Duration <= 0 || cfg.Warmup < 0 {
		return Result{}, errors.New("load: a measurement needs at least one goroutine and a duration")
	}
	var now atomic.Uint32
	meters := make([]*Meter, cfg.Goroutines)
	for i := range meters {
		meters[i] = &Meter{phase: &now}
		meters[i].latencies.made() // now, and not while it is measured
	}
	var loops sync.WaitGroup
	for i, m := range meters {
		loops.Go(func() {
			ctx, cancel := context.WithCancel(ctx) // of its own, as that of a request
			defer cancel()
			loop(ctx, i, m)
		})
	}
	err := wait(ctx, cfg.Warmup)
	before := usageNow()
	now.Store(counting)
	if err == nil {
		err = wait(ctx, cfg.Duration)
	}
	now.Store(over)
	after := usageNow()
	loops.Wait()
	return newResult(meters, before, after), err
}

// Meter counts the operations of one goroutine. Only that goroutine calls its methods.
type Meter struct {
	_          [64]byte // keeps the memory of others off this cache line
	phase      *atomic.Uint32
	errors     uint64
	firstError error
	latencies  Histogram
	_          [64]byte
}

// Add counts n operations that have just succeeded and took d each.
func (m *Meter) Add(n uint64, d time.Duration) {
	if m.phase.Load() == counting {
		m.latencies.Add(d, n)
	}
}

// Fail counts n operations that have just failed.
func (m *Meter) Fail(n uint64, err error) {
	if m.phase.Load() == counting {
		m.errors += n
		if m.firstError == nil {
			m.firstError = err
		}
	}
}

// Over reports whether the measurement is over.
func (m *Meter) Over() bool { return m.phase.Load() == over }

// wait waits for d. It returns the cause of ctx's end if that comes first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
