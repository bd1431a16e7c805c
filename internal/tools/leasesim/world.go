package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

const (
	key   = "k"
	scale = time.Second
	// callers is how many callers a process has. One that waits for the network makes no hits meanwhile.
	callers = 4
	// warmUp is before the windows that are measured.
	warmUp = 3 * scale
)

// world is processes that share a limit.
type world struct {
	processes int
	trip      time.Duration // the mean round trip; each way takes half to one and a half of its half
	demand    float64       // hits of all processes, as a part of the limit
	age       time.Duration
	limit     uint64
	windows   int
}

// network is a store that is a round trip away.
type network struct {
	lease.Store
	trip     time.Duration
	requests *atomic.Int64
}

func (n *network) way() {
	time.Sleep(n.trip/4 + rand.N(n.trip/2+1))
}

// Precision is that of a server with milliseconds.
func (n *network) Precision(time.Duration) time.Duration { return time.Millisecond }

// Take takes two requests.
func (n *network) Take(ctx context.Context, key string, scale time.Duration, limit, k uint64) (w window.Window, ok bool, err error) {
	n.requests.Add(2)
	n.way()
	w, ok, err = n.Store.Take(context.WithoutCancel(ctx), key, scale, limit, k)
	n.way()
	if w.ID != 0 {
		w.Left = max(time.Until(w.ExpiresAt), 1)
	}
	return w, ok, err
}

// GiveBack takes two requests.
func (n *network) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, k uint64) (ok bool, err error) {
	n.requests.Add(2)
	n.way()
	ok, err = n.Store.GiveBack(context.WithoutCancel(ctx), key, scale, id, k)
	n.way()
	return ok, err
}

// counts are what processes have found.
type counts struct {
	hits, early atomic.Int64 // early: refused although the window had not allowed the limit
	mu          sync.Mutex   // guards allowed
	allowed     map[int64]*atomic.Int64
}

// of returns how many hits a window has allowed.
func (c *counts) of(id int64) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.allowed[id]
	if n == nil {
		n = new(atomic.Int64)
		c.allowed[id] = n
	}
	return n
}

// run simulates the world and returns a line of the table.
func (w world) run(ctx context.Context) string {
	store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	defer store.Close()
	c := counts{allowed: map[int64]*atomic.Int64{}}
	var requests atomic.Int64
	begin := time.Now().Add(warmUp)
	end := begin.Add(time.Duration(w.windows) * scale)
	var all sync.WaitGroup
	for range w.processes {
		leases := lease.New(&network{store, w.trip, &requests}, w.age)
		defer leases.Close()
		for range callers {
			all.Go(func() { w.call(ctx, leases, &c, begin, end) })
		}
	}
	time.Sleep(time.Until(begin))
	before := requests.Load()
	all.Wait()
	total, over, used := int64(0), int64(0), 0.0
	for _, n := range c.allowed {
		total += n.Load()
		over += max(0, n.Load()-int64(w.limit))
	}
	seconds := end.Sub(begin).Seconds()
	used = float64(total) / (seconds * float64(w.limit) * math.Min(1, w.demand))
	return fmt.Sprintf("| %d | %v | %g | %.0f | %.1f %% | %.1f | %.2f | %d |", w.processes, w.trip, w.demand, float64(total)/seconds,
		100*used, 1000*float64(requests.Load()-before)/float64(total), 1000*float64(c.early.Load())/float64(c.hits.Load()), over)
}

// call makes the hits of one caller, at random times.
func (w world) call(ctx context.Context, leases *lease.Backend, c *counts, begin, end time.Time) {
	rate := w.demand * float64(w.limit) / float64(w.processes*callers) // hits per second
	pause := max(time.Duration(float64(time.Second)/rate), 2*time.Millisecond)
	for due := time.Now(); ; {
		due = due.Add(time.Duration(rand.ExpFloat64() * float64(pause)))
		time.Sleep(time.Until(due))
		now := time.Now()
		if !now.Before(end) {
			return
		}
		for n := poisson(rate * pause.Seconds()); n > 0; n-- {
			hit, err := leases.Hit(ctx, key, scale, w.limit, 1)
			if err != nil {
				panic(err)
			}
			w.count(c, hit, begin)
		}
	}
}

// count counts a hit if its window is measured.
func (w world) count(c *counts, hit window.Window, begin time.Time) {
	if hit.ExpiresAt.Add(-scale).Before(begin.Add(-scale)) || time.Now().Before(begin) {
		return
	}
	c.hits.Add(1)
	n := c.of(hit.ID)
	switch {
	case !hit.Refused:
		n.Add(1)
	case n.Load() < int64(w.limit):
		c.early.Add(1)
	}
}

// poisson returns a random number with a mean.
func poisson(mean float64) (n int) {
	if mean > 30 {
		return max(0, int(mean+math.Sqrt(mean)*rand.NormFloat64()+0.5))
	}
	for p := rand.Float64(); p > math.Exp(-mean); p *= rand.Float64() {
		n++
	}
	return n
}
