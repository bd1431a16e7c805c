package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
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
	keys    int // that will come
	limit   int // of each key
}

// subject is a contender that has been started.
type subject struct {
	// do performs one operation, and tells whether it was allowed.
	do    func(ctx context.Context, key string) (allowed bool, err error)
	close func() // nil: nothing
}

// touch performs an operation on every key, so that each is known.
func (s *subject) touch(ctx context.Context, keys keySet, goroutines int) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < keys.count() && errs[g] == nil; i += goroutines {
				_, errs[g] = s.do(ctx, keys.at(i))
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

// keyLength is that of every key.
const keyLength = 16

// keySet is keys one behind the other, so that to find one costs next to nothing.
type keySet string

// newKeys returns n keys.
func newKeys(n int) keySet {
	all := make([]byte, 0, n*keyLength)
	for i := range n {
		all = append(all, key(i)...)
	}
	return keySet(all)
}

// key returns the i-th key.
func key(i int) string { return fmt.Sprintf("user:%011d", i) }

// count returns how many keys there are.
func (k keySet) count() int { return len(k) / keyLength }

// at returns the i-th key.
func (k keySet) at(i int) string { return string(k[i*keyLength : (i+1)*keyLength]) }

// pick returns one of n at random, the same for the same numbers (the finalizer of
// SplitMix64).
func pick(n, worker int, i uint64) int {
	x := uint64(worker)<<40 + i
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	index, _ := bits.Mul64(x^x>>31, uint64(n))
	return int(index)
}
