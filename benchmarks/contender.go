package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// limit is how many operations a key is allowed within a window, more than come.
const limit = 1 << 30

// window is the length of windows, or the time in which as many tokens as limit come back.
const window = time.Hour

// contender is a way to count, or to limit.
type contender struct {
	name   string // in tables and charts
	module string // whose version is told; "" is this one
	does   string // what it does, and what it does not do
	start  func(ctx context.Context, job job) (*subject, error)
}

// job is what a contender is started for.
type job struct {
	servers *servers
	keys    []string
	limit   int // of each key
}

// subject is a contender that has been started.
type subject struct {
	// do performs one operation, and tells whether it was allowed.
	do    func(ctx context.Context, key string) (allowed bool, err error)
	close func() // nil: nothing
}

// touch performs an operation on every key, so that each is known.
func (s *subject) touch(ctx context.Context, keys []string, goroutines int) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < len(keys) && errs[g] == nil; i += goroutines {
				_, errs[g] = s.do(ctx, keys[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// stop lets go of what the subject has.
func (s *subject) stop() {
	if s.close != nil {
		s.close()
	}
}

// workload is what is done again and again by contenders that can be compared.
type workload struct {
	name       string
	contenders []contender
}

// The workloads. Those in the process have a name that tells them from those over a network.
var (
	increase = workload{"increase", []contender{
		throttrIncrease("throttr", mock), throttrIncrease("throttr, 3 µs server", slow), rueidisIncrease, goRedisIncrease,
	}}
	hit = workload{"hit", []contender{
		throttrHit("throttr", mock), throttrHit("throttr, 3 µs server", slow), rueidisHit, goRedisHit, redisRate,
	}}
	embedded = workload{"hit in the process", []contender{
		memoryAlone, memoryLimit, goLimiter, ulule, throttledGCRA, xTimeRate,
	}}
)

// keys returns n keys of 16 bytes.
func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = key(i)
	}
	return all
}

func key(i int) string { return fmt.Sprintf("user:%011d", i) }

// pick returns one of n at random, the same for the same numbers (the finalizer of
// SplitMix64).
func pick(n, worker int, i uint64) int {
	x := uint64(worker)<<40 + i
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}
