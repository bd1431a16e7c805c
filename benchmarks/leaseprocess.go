package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// assignmentVariable is the environment variable of a process that hits a shared key: its assignment, as JSON.
const assignmentVariable = "THROTTR_BENCHMARKS_ASSIGNMENT"

// assignment is what a process does.
type assignment struct {
	Sharer      string
	Mock, Redis string // addresses
	Key         string
	Callers     int
	Sample      int // hits for each hit whose time is taken
	Limit       int
	Scale       time.Duration
	Rate        float64 // hits per second of each caller; 0: as many as possible
	Start, End  time.Time
}

// sharedReport is what a process, or a caller in it, has done.
type sharedReport struct {
	Hits    uint64           // between start and end
	Allowed uint64           // of them
	CPU     time.Duration    // in the same time
	Times   load.Histogram   // of some of these hits
	Windows map[int64]uint64 // what was allowed, before the start, too, by the end of the window in Unix milliseconds
}

func (r *sharedReport) merge(o sharedReport) {
	r.Hits, r.Allowed, r.CPU = r.Hits+o.Hits, r.Allowed+o.Allowed, r.CPU+o.CPU
	r.Times.Merge(&o.Times)
	if r.Windows == nil {
		r.Windows = map[int64]uint64{}
	}
	for end, n := range o.Windows {
		r.Windows[end] += n
	}
}

// runAssignment hits a key as its assignment says, and writes a report.
func runAssignment(ctx context.Context, text string, w io.Writer) error {
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	for _, c := range sharers {
		if c.name == a.Sharer {
			report, err := c.run(ctx, a)
			if err != nil {
				return err
			}
			return json.NewEncoder(w).Encode(report)
		}
	}
	return fmt.Errorf("there is no %q", a.Sharer)
}

func (c sharer) run(ctx context.Context, a assignment) (all *sharedReport, err error) {
	backend, closeAll, err := c.open(ctx, setup{servers: &servers{mock: &process{addr: a.Mock}, redis: &process{addr: a.Redis}}, keys: 1})
	if err != nil {
		return nil, err
	}
	defer closeAll()
	limiter := throttr.NewRateLimit(backend, patience)
	callers := make([]*sharedCaller, a.Callers)
	var running sync.WaitGroup
	for i := range callers {
		callers[i] = &sharedCaller{assignment: a, limiter: limiter, report: sharedReport{Windows: map[int64]uint64{}}}
		running.Go(func() { callers[i].err = callers[i].run(ctx) })
	}
	time.Sleep(time.Until(a.Start))
	cpu := load.ProcessCPU()
	time.Sleep(time.Until(a.End))
	cpu = load.ProcessCPU() - cpu
	running.Wait()
	all = &sharedReport{CPU: cpu}
	for _, c := range callers {
		if c.err != nil {
			return nil, c.err
		}
		all.merge(c.report)
	}
	return all, nil
}

// sharedCaller is a goroutine that hits a shared key.
type sharedCaller struct {
	assignment
	limiter *throttr.RateLimit
	err     error

	allowed uint64 // in the window that was hit last, and not in the report yet
	end     time.Time
	report  sharedReport
	_       [64]byte // keeps the memory of other callers off this cache line
}

// run hits the key until its time is over.
func (c *sharedCaller) run(ctx context.Context) error {
	defer c.note(time.Time{})
	begun, due := time.Now(), 0
	for {
		now := time.Now()
		if !now.Before(c.End) {
			return nil
		}
		n := c.Sample
		if c.Rate > 0 {
			// The hits that are due by now.
			n = int(now.Sub(begun).Seconds()*c.Rate) - due
			if due += n; n == 0 {
				time.Sleep(time.Millisecond)
				continue
			}
		}
		if err := c.hit(ctx, n, !now.Before(c.Start)); err != nil {
			return err
		}
	}
}

// hit makes n hits. It takes the time of the first of them, or of each.
func (c *sharedCaller) hit(ctx context.Context, n int, counts bool) error {
	allowed := uint64(0)
	for i := range n {
		timed := counts && (c.Sample == 1 || i == 0)
		var begun time.Time
		if timed {
			begun = time.Now()
		}
		res, err := c.limiter.Hit(ctx, c.Key, c.Scale, uint64(c.Limit))
		if err != nil {
			return err
		}
		if timed {
			c.report.Times.Add(time.Since(begun), 1)
		}
		if !res.Allowed {
			continue
		}
		allowed++
		if res.ResetAt != c.end {
			c.note(res.ResetAt)
		}
		c.allowed++
	}
	if counts {
		c.report.Hits += uint64(n)
		c.report.Allowed += allowed
	}
	return nil
}

// note puts what was allowed in the last window into the report. Hits in a window that ends at end
// follow.
func (c *sharedCaller) note(end time.Time) {
	if !c.end.IsZero() {
		c.report.Windows[c.end.UnixMilli()] += c.allowed
	}
	c.end, c.allowed = end, 0
}
