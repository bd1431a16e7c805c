package backendtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

const goroutines = 64

// concurrently calls f with 0 to n-1, from many goroutines.
func concurrently(n int, f func(i int)) {
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n; i += goroutines {
				f(i)
			}
		})
	}
	all.Wait()
}

func testDistinctCounts(c calls) {
	n := int(c.bounded(10_000))
	counts := make([]uint64, n)
	concurrently(n, func(i int) {
		w, err := c.Backend.Charge(c.Context(), "k", c.limit(time.Hour, 10), 1)
		if err != nil {
			c.Errorf("Charge: %v", err)
		}
		counts[i] = w.Count
	})
	slices.Sort(counts)
	for i, count := range counts {
		if count != uint64(i+1) {
			c.Fatalf("the hits return count %d, want %d", count, i+1)
		}
	}
}

func testLimit(c calls) {
	const hits = 100_000
	limit := c.bounded(1000)
	counts := make([]uint64, hits)
	concurrently(hits, func(i int) {
		w, err := c.Backend.Hit(c.Context(), "k", c.limit(time.Hour, limit), 1)
		if err != nil {
			c.Errorf("Hit: %v", err)
		}
		counts[i] = c.asCounted(w, 1).Count
	})
	slices.Sort(counts)
	for i := range limit {
		if counts[i] != i+1 {
			c.Fatalf("the hits return count %d, want %d", counts[i], i+1)
		}
	}
	if counts[limit] <= limit {
		c.Errorf("two hits return count %d: more than %d hits are allowed", counts[limit], limit)
	}
	if n := c.get("k", time.Hour).Count; n > hits || n != hits && !c.SkipsDenied {
		c.Errorf("the count is %d after %d hits", n, hits)
	}
}

// testOpenings makes concurrent hits when windows open, and again when they end.
func testOpenings(c calls) {
	const keys, scale = 50, time.Minute
	for range 3 {
		var counts [keys][goroutines]uint64
		concurrently(keys*goroutines, func(i int) {
			key := i / goroutines
			w, err := c.Backend.Hit(c.Context(), fmt.Sprint("k", key), c.limit(scale, goroutines), 1)
			if err != nil {
				c.Errorf("Hit: %v", err)
			}
			counts[key][i%goroutines] = w.Count
		})
		for key := range counts {
			slices.Sort(counts[key][:])
			for i, count := range counts[key] {
				if count != uint64(i+1) {
					c.Fatalf("the hits return count %d, want %d", count, i+1)
				}
			}
		}
		c.Clock.Advance(scale)
	}
}

func testMixed(c calls) {
	const hits = 5000
	type hit struct {
		limit, n uint64
		w        window.Window
	}
	random := rand.New(rand.NewPCG(1, 2))
	made := make([]hit, hits)
	for i := range made {
		made[i].limit = 1 + random.Uint64N(c.bounded(2000)-7)
		made[i].n = 1 + random.Uint64N(7)
	}
	concurrently(hits, func(i int) {
		h := &made[i]
		var err error
		if h.w, err = c.Backend.Hit(c.Context(), "k", c.limit(time.Hour, h.limit), h.n); err != nil {
			c.Errorf("Hit: %v", err)
		}
		h.w = c.asCounted(h.w, h.n)
	})
	slices.SortFunc(made, func(a, b hit) int { return cmp.Compare(a.w.Count, b.w.Count) })
	last := uint64(0)
	for _, h := range made {
		if c.SkipsDenied && h.w.Count > h.limit {
			continue // it may not have been counted
		}
		if h.w.Count < last+h.n || !c.SkipsDenied && h.w.Count > last+h.n {
			c.Fatalf("a hit of %d returns count %d, after count %d of another hit", h.n, h.w.Count, last)
		}
		last = h.w.Count
	}
	if final := c.get("k", time.Hour).Count; last > final || last < final && !c.SkipsDenied {
		c.Errorf("the last hit returns count %d, but the count is %d", last, final)
	}
}

func testEnd(c calls) {
	scale := c.stretch(shortest)
	c.none(c.get("k", scale))
	c.Clock.Advance(c.stretch(30 * time.Millisecond))
	end := c.end(scale)
	c.want(c.hit("k", scale, 5, 1), 1, end)
	c.Clock.Advance(c.stretch(20 * time.Millisecond))
	c.want(c.hit("k", scale, 5, 2), 3, end)
	c.want(c.get("k", scale), 3, end)

	c.Clock.Advance(end.Sub(c.Clock.Now()) - time.Millisecond)
	c.want(c.charge("k", scale, 1), 4, end)
	c.Clock.Advance(time.Millisecond)
	c.none(c.get("k", scale))
	end = c.end(scale)
	c.want(c.hit("k", scale, 5, 1), 1, end)

	c.Clock.Advance(3 * scale)
	c.none(c.get("k", scale))
	c.want(c.hit("k", scale, 5, 0), 0, c.end(scale))
}

func testSet(c calls) {
	const scale = time.Minute
	c.want(c.set("k", scale, 7), 7, c.end(scale))
	c.want(c.hit("k", scale, 10, 1), 8, c.end(scale))
	c.Clock.Advance(20 * time.Second)
	c.want(c.set("k", scale, 3), 3, c.end(scale))
	c.want(c.get("k", scale), 3, c.end(scale))
	c.want(c.charge("k", scale, 2), 5, c.end(scale))
	c.want(c.set("k", scale, 0), 0, c.end(scale))
	end := c.end(scale)
	c.want(c.get("k", scale), 0, end)
	c.Clock.Advance(end.Sub(c.Clock.Now()))
	c.none(c.get("k", scale))
	c.want(c.set("k", scale, 50), 50, c.end(scale))
	w := c.hit("k", scale, 10, 1)
	if w.Count != 51 && (!c.SkipsDenied || w.Count != 50) {
		c.Errorf("a hit on a window of 50 hits returns count %d, want 51", w.Count)
	}
	c.want(c.set("k", scale, 2), 2, c.end(scale))
	c.want(c.hit("k", scale, 10, 1), 3, c.end(scale))
}
