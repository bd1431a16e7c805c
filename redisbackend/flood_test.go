package redisbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// The flood of a failover.
const (
	floodKeys    = 300
	floodLimit   = 200
	floodCallers = 32
	floodTimeout = 2 * time.Minute
)

// floodOf is the limit of the hits.
var floodOf = window.Limit{Max: floodLimit, Scale: time.Hour, Algorithm: window.FixedWindow}

// failoverFigures is what a flood of hits has seen while a replica of a cluster took over.
type failoverFigures struct {
	Hits    int // that returned a decision
	Allowed int
	Errors  int           // hits that returned an error, which Redis may have counted
	Over    int           // hits allowed beyond the limit of their window
	Most    int           // the same, of the window with the most of them
	Until   time.Duration // from the failure until the last error
	first   error
}

// String formats the figures as a row of a table.
func (f failoverFigures) String() string {
	return fmt.Sprintf("| %d | %d | %d | %d | %d | %v |", f.Hits, f.Allowed, f.Errors, f.Over, f.Most, f.Until.Round(10*time.Millisecond))
}

// floodFailover hits windows of an hour until each of them is full. When half of all hits are
// allowed, it calls fail, which makes a primary of the cluster fail. The backends share the
// windows; each has its own client.
func floodFailover(t testing.TB, fail func(), backends ...window.Backend) failoverFigures {
	t.Helper()
	f := &failoverFlood{allowed: make([]int, floodKeys), full: make([]bool, floodKeys), half: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), floodTimeout)
	defer cancel()
	var callers sync.WaitGroup
	for i := range floodCallers {
		callers.Go(func() { f.hit(ctx, backends[i%len(backends)]) })
	}
	select {
	case <-f.half:
	case <-ctx.Done():
		t.Fatalf("half of the hits are not allowed in time: %v", f.first)
	}
	f.mu.Lock()
	f.failed = time.Now()
	f.mu.Unlock()
	fail()
	callers.Wait()
	if ctx.Err() != nil {
		t.Fatalf("not all windows are full after %v: %+v, %v", floodTimeout, f.failoverFigures, f.first)
	}
	for _, n := range f.allowed {
		f.Over += max(0, n-floodLimit)
		f.Most = max(f.Most, n-floodLimit)
	}
	t.Logf("the first error: %v", f.first)
	return f.failoverFigures
}

// failoverFlood is a failoverFlood under way.
type failoverFlood struct {
	mu sync.Mutex // guards what follows
	failoverFigures
	allowed []int  // per key
	full    []bool // per key: a hit was denied
	done    int    // keys that are full
	failed  time.Time
	half    chan struct{} // closed when half of all hits are allowed
}

// hit hits random windows that are not full, until all are full.
func (f *failoverFlood) hit(ctx context.Context, b window.Backend) {
	for ctx.Err() == nil {
		k, ok := f.pick()
		if !ok {
			return
		}
		w, err := b.Hit(ctx, fmt.Sprint("user:", k), floodOf, 1)
		f.count(k, w, err)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// pick returns a window that is not full. It returns false if there is none.
func (f *failoverFlood) pick() (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done == floodKeys {
		return 0, false
	}
	k := rand.IntN(floodKeys)
	for f.full[k] {
		k = (k + 1) % floodKeys
	}
	return k, true
}

// count counts the outcome of a hit.
func (f *failoverFlood) count(k int, w window.Window, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.Errors++
		if f.first == nil {
			f.first = err
		}
		f.Until = time.Since(f.failed)
		return
	case w.Count <= floodLimit:
		f.allowed[k]++
		if f.Allowed++; f.Allowed == floodKeys*floodLimit/2 {
			close(f.half)
		}
	case !f.full[k]:
		f.full[k] = true
		f.done++
	}
	f.Hits++
}

// requireFewMore fails the test if more hits were allowed beyond the limits than a replica can have
// missed, or if hits failed long after the failover. It logs the figures.
func requireFewMore(t testing.TB, f failoverFigures) {
	t.Helper()
	t.Logf("hits, allowed, errors, over the limit, most of a window, errors until\n%v", f)
	if f.Over > floodKeys*floodLimit/100 {
		t.Errorf("%d hits of %d were allowed beyond the limits", f.Over, f.Allowed)
	}
	if f.Until > 45*time.Second {
		t.Errorf("hits failed until %v after the primary has failed", f.Until)
	}
}
