package main

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// limit is the limit of each key. It is never reached.
const limit = 1 << 30

// scale is the length of windows. Contenders without windows refill the limit in it.
const scale = time.Hour

// The limit and the scale of sparse keys, most of whose hits open a window.
const (
	sparseLimit = 20
	sparseScale = time.Second
)

// contender is a way to count or to limit.
type contender struct {
	name   string // in tables and charts
	module string // whose version is reported; "": this one
	does   string // what it does and what it does not do
	start  func(ctx context.Context, s setup) (*instance, error)
}

// setup is what a contender is started with.
type setup struct {
	servers *servers
	keys    int // number of keys that will be used
	limit   int // of each key
	scale   time.Duration

	key     string // of a sharer
	callers int    // the same
}

// instance is a contender that has been started.
type instance struct {
	// do performs an operation and reports whether it was allowed.
	do    func(ctx context.Context, key string) (allowed bool, err error)
	close func() // nil: there is nothing to close
}

// touch performs an operation on each key, so that no key is new.
func (c *instance) touch(ctx context.Context, keys load.Keys, goroutines int) error {
	return load.ForEach(keys.Len(), goroutines, func(i int) error {
		_, err := c.do(ctx, keys.At(i))
		return err
	})
}

// stop closes the instance.
func (c *instance) stop() {
	if c.close != nil {
		c.close()
	}
}

// workload is an operation, and the contenders that do it.
type workload struct {
	name       string
	contenders []contender
}

// The workloads.
var (
	increase = workload{"increase", []contender{
		throttrIncrease("throttr", mock), throttrIncrease("throttr, real times", realTimes), rueidisIncrease, goRedisIncrease,
	}}
	hit = workload{"hit", []contender{
		throttrHit("throttr", mock), throttrHit("throttr, real times", realTimes), redisHit, rueidisHit, goRedisHit, redisRate,
	}}
	redisWindow = workload{"hit", []contender{redisHit, rueidisHit}}
	bucket      = workload{"token bucket", []contender{redisBucket, goRedisBucket, redisRate}}
	sparse      = workload{"sparse", []contender{rueidisHit, redisRate}} // throttr bench measures throttr
	embedded    = workload{"hit in the process", []contender{
		memoryBackend, memoryRateLimit, goLimiter, ulule, throttledGCRA, xTimeRate,
	}}
)

// sequence generates keys of 16 bytes.
var sequence = load.NewSequence("key:")

// newKeys returns n keys.
func newKeys(n int) load.Keys { return load.KeySet{Sequence: sequence, N: n}.Keys() }

// newSparseKeys returns n keys that no other workload uses, whose windows would be longer.
func newSparseKeys(n int) load.Keys {
	return load.KeySet{Sequence: load.NewSequence("few:"), N: n}.Keys()
}
