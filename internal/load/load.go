// Package load measures an operation in a closed loop: so many goroutines perform it one
// after the other, for so long, and how fast that goes, how long each takes, and what it
// costs the process is told in the end.
//
//	res, err := load.Run(ctx, load.Config{Goroutines: 64, Duration: 10 * time.Second},
//		func(ctx context.Context, worker int, i uint64) error { … })
//
// What is measured is not disturbed: the loop allocates nothing, and writes to no memory
// that another goroutine writes to.
package load

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Operation is what is measured. It is called by the goroutine of the given number, from
// 0, for the i-th time, from 0, warming up included.
type Operation func(ctx context.Context, worker int, i uint64) error

// Config says how an operation is measured.
type Config struct {
	Goroutines int           // that perform it, at least 1
	Warmup     time.Duration // before anything counts
	Duration   time.Duration // in which operations count, more than 0
	// Batch is how many operations are performed between two looks at the clock, each of
	// which is taken to have lasted equally long: for operations that are not much longer
	// than the look. Default: 1.
	Batch int
	// Progress, if not nil, is called about once a second.
	Progress func(Progress)
}

// Progress is how far a measurement is.
type Progress struct {
	Warming    bool          // nothing counts yet
	Elapsed    time.Duration // since it began to count, or to warm up
	Operations uint64        // so far, since the same
	PerSecond  float64       // since the last progress
}

// Result is what was measured. An operation counts if it has ended within the duration.
type Result struct {
	Operations uint64        `json:"operations"` // that have succeeded
	Errors     uint64        `json:"errors"`     // operations that have failed; nothing else counts them
	FirstError error         `json:"-"`          // of any goroutine; nil: none
	Elapsed    time.Duration `json:"elapsed_ns"`
	PerSecond  float64       `json:"per_second"` // operations

	// How long operations took, to 1/64 (Max to the nanosecond).
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`

	// What the whole process has used meanwhile, per operation. CPU is user and system
	// time in nanoseconds, 0 where the system does not tell.
	CPUPerOperation    float64 `json:"cpu_ns_per_operation"`
	AllocsPerOperation float64 `json:"allocs_per_operation"`
	BytesPerOperation  float64 `json:"bytes_per_operation"` // allocated
}

// phase is how far the coordinator is.
type phase = uint32

const (
	warming phase = iota
	counting
	over
)

// Run performs op in a closed loop, and returns once every operation under way has ended.
// If ctx ends first, it returns what was measured until then, and the cause.
func Run(ctx context.Context, cfg Config, op Operation) (Result, error) {
	if cfg.Batch < 0 {
		return Result{}, errors.New("load: a batch has at least one operation")
	}
	batch := uint64(max(cfg.Batch, 1))
	return RunLoops(ctx, cfg, func(ctx context.Context, worker int, m *Meter) {
		base := time.Now()
		var last time.Duration
		for i := uint64(0); !m.Over(); i += batch {
			var failed uint64
			var failure error
			for j := range batch {
				if err := op(ctx, worker, i+j); err != nil {
					failed++
					failure = err
				}
			}
			now := time.Since(base)
			m.Add(batch-failed, (now-last)/time.Duration(batch))
			if failed > 0 {
				m.Fail(failed, failure)
			}
			last = now // the start of the next
		}
	})
}

// Loop is the loop of the goroutine of the given number, from 0: it tells m what becomes of
// the operations that it performs in its own way, and returns when m is over.
type Loop func(ctx context.Context, worker int, m *Meter)

// RunLoops is [Run] for loops other than one operation after the other.
func RunLoops(ctx context.Context, cfg Config, loop Loop) (Result, error) {
	if cfg.Goroutines < 1 || cfg.Duration <= 0 || cfg.Warmup < 0 {
		return Result{}, errors.New("load: there must be goroutines, and a duration")
	}
	r := &run{cfg: cfg, meters: make([]*Meter, cfg.Goroutines)}
	for i := range r.meters {
		r.meters[i] = &Meter{phase: &r.phase}
	}
	var loops sync.WaitGroup
	for i, m := range r.meters {
		loops.Go(func() { loop(ctx, i, m) })
	}
	err := r.pass(ctx, cfg.Warmup)
	before := usageNow()
	r.phase.Store(counting)
	if err == nil {
		err = r.pass(ctx, cfg.Duration)
	}
	r.phase.Store(over)
	after := usageNow()
	loops.Wait()
	return r.result(before, after), err
}

// Meter is what one goroutine has measured. Only that goroutine calls its methods.
type Meter struct {
	_          [64]byte // keeps others' memory away
	phase      *atomic.Uint32
	told       uint64
	performed  atomic.Uint64 // told, for others
	errors     uint64
	firstError error
	latencies  histogram
	_          [64]byte
}

// Add counts n operations that have succeeded just now, each of which has taken so long.
func (m *Meter) Add(n uint64, each time.Duration) {
	if m.phase.Load() == counting {
		m.latencies.add(uint64(each), n)
	}
	m.tell(n)
}

// Fail counts n operations that have failed just now.
func (m *Meter) Fail(n uint64, err error) {
	if m.phase.Load() == counting {
		m.errors += n
		if m.firstError == nil {
			m.firstError = err
		}
	}
	m.tell(n)
}

func (m *Meter) tell(n uint64) {
	m.told += n
	m.performed.Store(m.told)
}

// Over reports whether the time is over.
func (m *Meter) Over() bool { return m.phase.Load() == over }

// run is a measurement under way.
type run struct {
	cfg    Config
	meters []*Meter
	phase  atomic.Uint32
}

// pass lets time pass, and tells of the progress.
func (r *run) pass(ctx context.Context, d time.Duration) error {
	end := time.NewTimer(d)
	defer end.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	start, before := time.Now(), r.performed()
	last, lastPerformed := start, before
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end.C:
			return nil
		case <-second.C:
		}
		if r.cfg.Progress == nil {
			continue
		}
		now, performed := time.Now(), r.performed()
		r.cfg.Progress(Progress{
			Warming: r.phase.Load() == warming, Elapsed: now.Sub(start), Operations: performed - before,
			PerSecond: float64(performed-lastPerformed) / now.Sub(last).Seconds(),
		})
		last, lastPerformed = now, performed
	}
}

// performed returns how many operations there have been, failed ones included.
func (r *run) performed() (n uint64) {
	for _, m := range r.meters {
		n += m.performed.Load()
	}
	return n
}

// result puts together what the goroutines have measured, which have ended.
func (r *run) result(before, after usage) Result {
	var all histogram
	var res Result
	for _, m := range r.meters {
		all.merge(&m.latencies)
		res.Errors += m.errors
		if res.FirstError == nil {
			res.FirstError = m.firstError
		}
	}
	res.Operations = all.count
	res.Elapsed = after.at.Sub(before.at)
	if res.Elapsed > 0 {
		res.PerSecond = float64(all.count) / res.Elapsed.Seconds()
	}
	res.P50, res.P99, res.P999 = all.quantile(0.5), all.quantile(0.99), all.quantile(0.999)
	res.Max = time.Duration(all.max)
	if all.count > 0 {
		n := float64(all.count)
		res.CPUPerOperation = float64(after.cpu-before.cpu) / n
		res.AllocsPerOperation = float64(after.allocs-before.allocs) / n
		res.BytesPerOperation = float64(after.bytes-before.bytes) / n
	}
	return res
}

// usage is what the process has used so far.
type usage struct {
	at            time.Time
	cpu           time.Duration
	allocs, bytes uint64
}

func usageNow() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{at: time.Now(), cpu: processCPU(), allocs: m.Mallocs, bytes: m.TotalAlloc}
}
