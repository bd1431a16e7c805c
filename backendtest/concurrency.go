package backendtest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

const goroutines = 64

// together calls f n times from many goroutines.
func together(n int, f func(i int)) {
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

func testPlaces(t *testing.T, s Subject) {
	n := int(s.bounded(10_000))
	counts := make([]uint64, n)
	together(n, func(i int) {
		w, err := s.Backend.Inc(t.Context(), "k", time.Hour, 1)
		if err != nil {
			t.Errorf("Inc: %v", err)
		}
		counts[i] = w.Count
	})
	slices.Sort(counts)
	for i, count := range counts {
		if count != uint64(i+1) {
			t.Fatalf("place %d was given as %d", i+1, count)
		}
	}
}

func testLimit(t *testing.T, s Subject) {
	const hits = 100_000
	limit := s.bounded(1000)
	counts := make([]uint64, hits)
	together(hits, func(i int) {
		w, err := s.Backend.Hit(t.Context(), "k", time.Hour, limit, 1)
		if err != nil {
			t.Errorf("Hit: %v", err)
		}
		counts[i] = w.Count
	})
	slices.Sort(counts)
	for i := range limit {
		if counts[i] != i+1 {
			t.Fatalf("place %d was given as %d", i+1, counts[i])
		}
	}
	if counts[limit] <= limit {
		t.Errorf("more than %d hits are allowed", limit)
	}
	if n := (calls{t, s}).get("k", time.Hour).Count; n > hits || n != hits && !s.SkipsDenied {
		t.Errorf("%d hits are counted of %d", n, hits)
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
	together(hits, func(i int) {
		h := &made[i]
		var err error
		if h.w, err = s.Backend.Hit(t.Context(), "k", time.Hour, h.limit, h.increment); err != nil {
			t.Errorf("Hit: %v", err)
		}
	})
	slices.SortFunc(made, func(a, b hit) int { return int(a.w.Count) - int(b.w.Count) })
	last := uint64(0)
	for _, h := range made {
		if h.w.Count > h.limit {
			continue
		}
		if h.w.Count < last+h.increment {
			t.Fatalf("a hit of %d was given place %d, and another hit %d", h.increment, h.w.Count, last)
		}
		last = h.w.Count
	}
	if final := (calls{t, s}).get("k", time.Hour).Count; last > final {
		t.Errorf("place %d was given, and the count is %d", last, final)
	}
}
