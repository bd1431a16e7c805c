package backendtest

import (
	"fmt"
	"slices"
	"sync"
	"time"
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

func testLimit(c calls) {
	const hits = 100_000
	limit := c.bounded(1000)
	counts := make([]uint64, hits)
	concurrently(hits, func(i int) {
		w, err := c.Backend.Hit(c.Context(), "k", c.limit(time.Hour, limit), 1)
		c.expect(err == nil, "Hit: %v", err)
		counts[i] = c.asCounted(w, 1).Count
	})
	slices.Sort(counts)
	for i := range limit {
		if counts[i] != i+1 {
			c.Fatalf("the hits return count %d, want %d", counts[i], i+1)
		}
	}
	c.expect(counts[limit] > limit, "two hits return count %d: more than %d hits are allowed", counts[limit], limit)
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
			c.expect(err == nil, "Hit: %v", err)
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
