package backendtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
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

func testDistinctCounts(t *testing.T, s Subject) {
	n := int(s.bounded(10_000))
	counts := make([]uint64, n)
	concurrently(n, func(i int) {
		w, err := s.Backend.Inc(t.Context(), "k", time.Hour, 1)
		if err != nil {
			t.Errorf("Inc: %v", err)
		}
		counts[i] = w.Count
	})
	slices.Sort(counts)
	for i, count := range counts {
		if count != uint64(i+1) {
			t.Fatalf("the hits return count %d, want %d", count, i+1)
		}
	}
}

func testLimit(t *testing.T, s Subject) {
	const hits = 100_000
	limit := s.bounded(1000)
	counts := make([]uint64, hits)
	concurrently(hits, func(i int) {
		w, err := s.Backend.Hit(t.Context(), "k", time.Hour, limit, 1)
		if err != nil {
			t.Errorf("Hit: %v", err)
		}
		counts[i] = s.asCounted(w, 1).Count
	})
	slices.Sort(counts)
	for i := range limit {
		if counts[i] != i+1 {
			t.Fatalf("the hits return count %d, want %d", counts[i], i+1)
		}
	}
	if counts[limit] <= limit {
		t.Errorf("two hits return count %d: more than %d hits are allowed", counts[limit], limit)
	}
	if n := (calls{t, s}).get("k", time.Hour).Count; n > hits || n != hits && !s.SkipsDenied {
		t.Errorf("the count is %d after %d hits", n, hits)
	}
}

// testOpenings makes concurrent hits when windows open, and again when they end.
func testOpenings(t *testing.T, s Subject) {
	const keys, scale = 50, time.Minute
	for range 3 {
		var counts [keys][goroutines]uint64
		concurrently(keys*goroutines, func(i int) {
			key := i / goroutines
			w, err := s.Backend.Hit(t.Context(), fmt.Sprint("k", key), scale, goroutines, 1)
			if err != nil {
				t.Errorf("Hit: %v", err)
			}
			counts[key][i%goroutines] = w.Count
		})
		for key := range counts {
			slices.Sort(counts[key][:])
			for i, count := range counts[key] {
				if count != uint64(i+1) {
					t.Fatalf("the hits return count %d, want %d", count, i+1)
				}
			}
		}
		s.Clock.Advance(scale)
	}
}

// sharedKey returns one of the four keys of callAll.
func sharedKey(i int) string { return fmt.Sprint("k", i%4) }

// callAll makes concurrent calls of all methods, most results of which depend on the order. No window
// may last for longer than so many of its scales.
func callAll(t *testing.T, s Subject, scales []time.Duration, lasts time.Duration) {
	concurrently(2000, func(i int) {
		b, ctx, key, scale := s.Backend, t.Context(), sharedKey(i), scales[i%2]
		var w window.Window
		var err error
		switch i / 8 % 9 {
		case 0:
			w, err = b.Set(ctx, key, scale, uint64(i%5))
		case 1:
			err = b.Reset(ctx, key, scale)
		case 2:
			_, err = b.Delete(ctx, key, scales...)
		case 3:
			_, err = b.Delete(ctx, key)
		case 4:
			w, err = b.Get(ctx, key, scale)
		case 5:
			w, err = b.Inc(ctx, key, scale, 1)
		default:
			w, err = b.Hit(ctx, key, scale, 5, 1)
		}
		if err != nil || w.Count > 2004 || w.Left > lasts*scale+s.Exact || w.Left < 0 {
			t.Errorf("call %d returns %+v, %v", i, w, err)
		}
	})
}

// testAllMethods makes concurrent calls of all methods. Then it checks that new windows are not
// affected.
func testAllMethods(t *testing.T, s Subject) {
	scales := []time.Duration{time.Second, time.Minute}
	callAll(t, s, scales, 1)
	c := calls{t, s}
	s.Clock.Advance(2 * time.Minute)
	for i := range 4 {
		for _, scale := range scales {
			c.none(c.get(sharedKey(i), scale))
			c.want(c.inc(sharedKey(i), scale, 1), 1, c.end(scale))
			c.want(c.inc(sharedKey(i), scale, 1), 2, c.end(scale))
		}
	}
}

func testMixed(t *testing.T, s Subject) {
	const hits = 5000
	type hit struct {
		limit, increment uint64
		w                window.Window
	}
	random := rand.New(rand.NewPCG(1, 2))
	made := make([]hit, hits)
	for i := range made {
		made[i].limit = 1 + random.Uint64N(s.bounded(2000)-7)
		made[i].increment = 1 + random.Uint64N(7)
	}
	concurrently(hits, func(i int) {
		h := &made[i]
		var err error
		if h.w, err = s.Backend.Hit(t.Context(), "k", time.Hour, h.limit, h.increment); err != nil {
			t.Errorf("Hit: %v", err)
		}
		h.w = s.asCounted(h.w, h.increment)
	})
	slices.SortFunc(made, func(a, b hit) int { return cmp.Compare(a.w.Count, b.w.Count) })
	last := uint64(0)
	for _, h := range made {
		if s.SkipsDenied && h.w.Count > h.limit {
			continue // it may not have been counted
		}
		if h.w.Count < last+h.increment || !s.SkipsDenied && h.w.Count > last+h.increment {
			t.Fatalf("a hit of %d returns count %d, after count %d of another hit", h.increment, h.w.Count, last)
		}
		last = h.w.Count
	}
	if final := (calls{t, s}).get("k", time.Hour).Count; last > final || last < final && !s.SkipsDenied {
		t.Errorf("the last hit returns count %d, but the count is %d", last, final)
	}
}
