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

// testCounts makes concurrent hits of one key, many of which are over the limit, and then of several keys when
// windows open.
func testCounts(c calls) {
	const hits = 100_000
	one := c.in(time.Hour).upTo(c.bounded(1000))
	counts := one.countsOfHits(1, hits)
	c.expect(counts[one.limit.Max] > one.limit.Max, "two hits return count %d: more than %d are allowed", one.limit.Max, one.limit.Max)
	if n := one.on("k0").get().Count; n > hits || n != hits && !c.SkipsDenied {
		c.Errorf("the count is %d after %d hits", n, hits)
	}
	for range 3 {
		c.in(time.Minute).upTo(goroutines).countsOfHits(50, goroutines)
		c.Clock.Advance(time.Minute)
	}
}

// countsOfHits makes concurrent hits of some keys, and returns the counts of the last one in order. Up to the limit,
// each count is returned once.
func (c calls) countsOfHits(keys, hits int) (counts []uint64) {
	all := make([][]uint64, keys)
	for key := range all {
		all[key] = make([]uint64, hits)
	}
	concurrently(keys*hits, func(i int) {
		w, err := c.Backend.Hit(c.Context(), fmt.Sprint("k", i/hits), c.limit, 1)
		c.expect(err == nil, "Hit: %v", err)
		all[i/hits][i%hits] = c.asCounted(w, 1).Count
	})
	for _, counts = range all {
		slices.Sort(counts)
		for i := range min(len(counts), int(c.limit.Max)) {
			if counts[i] != uint64(i+1) {
				c.Fatalf("the hits return count %d, want %d", counts[i], i+1)
			}
		}
	}
	return counts
}

func testEnd(c calls) {
	c = c.in(c.stretch(shortest))
	c.ended()
	c.Clock.Advance(c.stretch(30 * time.Millisecond))
	end := c.end()
	c.want(c.hit(1), 1, end)
	c.Clock.Advance(c.stretch(20 * time.Millisecond))
	c.want(c.hit(2), 3, end)
	c.want(c.get(), 3, end)

	c.Clock.Advance(end.Sub(c.Clock.Now()) - time.Millisecond)
	c.want(c.charge(1), 4, end)
	c.Clock.Advance(time.Millisecond)
	c.ended()
	c.opened(c.hit(1), 1)

	c.Clock.Advance(3 * c.limit.Scale)
	c.ended()
	c.opened(c.hit(0), 0)
}
