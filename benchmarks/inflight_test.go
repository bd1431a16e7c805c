package main

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

// semaphores is what a program without package inflight has: a semaphore for each key.
type semaphores struct {
	mu  sync.Mutex
	all map[string]*semaphore.Weighted
}

func (s *semaphores) of(key string) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.all[key]
	if w == nil {
		w = semaphore.NewWeighted(1000)
		s.all[key] = w
	}
	return w
}

// BenchmarkPlaceInMemory is a pair of acquire and release: of package inflight, of x/sync/semaphore with one for each
// key, and of one semaphore.
func BenchmarkPlaceInMemory(b *testing.B) {
	ctx := context.Background()
	store := memory.New()
	defer store.Close()
	l := inflight.New(store)
	defer l.Close()
	limit := inflight.Limit{Max: 1000}
	s := &semaphores{all: map[string]*semaphore.Weighted{}}
	one := semaphore.NewWeighted(1000)
	pairs := map[string]func(){
		"inflight": func() {
			h, _ := l.Acquire(ctx, "customer:7", limit, 1)
			h.Release()
		},
		"semaphores": func() {
			w := s.of("customer:7")
			w.Acquire(ctx, 1)
			w.Release(1)
		},
		"semaphore": func() {
			one.Acquire(ctx, 1)
			one.Release(1)
		},
	}
	for _, name := range []string{"inflight", "semaphores", "semaphore"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pairs[name]()
			}
		})
		b.Run(name+" by many", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					pairs[name]()
				}
			})
		})
	}
	// All but one wait.
	full := inflight.Limit{Name: "full", Max: 1}
	mutex := semaphore.NewWeighted(1)
	for name, pair := range map[string]func(){
		"inflight": func() {
			h, _ := l.Acquire(ctx, "customer:7", full, 1)
			h.Release()
		},
		"semaphore": func() {
			mutex.Acquire(ctx, 1)
			mutex.Release(1)
		},
	} {
		b.Run(name+" in line", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					pair()
				}
			})
		})
	}
}
