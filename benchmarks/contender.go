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

	goroutines int // that use it
	conns      int // that the contender before has used, if it is a client of Throttr
}

// instance is a contender that has been started.
type instance struct {
	// do performs an operation and reports whether it was allowed.
	do func(ctx context.Context, key string) (allowed bool, err error)
	// run is [load.Run] for contenders that do not simply repeat do; nil otherwise.
	run   func(ctx context.Context, cfg load.Config, keys load.Keys) (load.Result, error)
	conns func() int // returns the number of connections that are open; nil: that does not matter
	close func()     // nil: there is nothing to close

	windows *windows // what run has counted; nil: nothing
}

// touch performs an operation on each key, so that no key is new.
func (c *instance) touch(ctx context.Context, keys load.Keys, goroutines int) error {
	if c.do == nil {
		return nil
	}
	return load.ForEach(keys.Len(), goroutines, func(i int) error {
		_, err := c.do(ctx, keys.At(i))
		return err
	})
}

// inProcess is [load.Run] for operations as short as its own calls and readings of the clock: their cost would make
// contenders look alike.
func (c *instance) inProcess(ctx context.Context, cfg load.Config, keys load.Keys) (load.Result, error) {
	const perReading = 100
	return load.RunLoops(ctx, cfg, func(ctx context.Context, worker int, m *load.Meter) {
		start := time.Now()
		for i := uint64(0); !m.Over(); i += perReading {
			for j := range uint64(perReading) {
				allowed, err := c.do(ctx, keys.Pick(worker, i+j))
				if err == nil && !allowed {
					err = errDenied
				}
				if err != nil {
					m.Fail(1, err)
					return
				}
			}
			now := time.Now()
			m.Add(perReading, now.Sub(start)/perReading)
			start = now
		}
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

// The names of the client of Throttr, and of what writes the same frames without one.
const (
	ours     = "throttr"
	raw      = "raw"
	oursReal = "throttr, real times"
	rawReal  = "raw, real times"
)

// The workloads.
var (
	increase = workload{"increase", []contender{
		throttrIncrease(ours, mock), rawFrames(raw, load.Increase, mock),
		throttrIncrease(oursReal, realTimes), rawFrames(rawReal, load.Increase, realTimes), rueidisIncrease, goRedisIncrease,
	}}
	query = workload{"query", []contender{throttrQuery}}
	hit   = workload{"hit", []contender{
		throttrHit(ours, mock), rawFrames(raw, load.Hit, mock),
		throttrHit(oursReal, realTimes), rawFrames(rawReal, load.Hit, realTimes), redisHit, rueidisHit, goRedisHit, redisRate,
	}}
	bucket = workload{"token bucket", []contender{redisBucket, redisRate}}
	sparse = workload{"sparse", []contender{throttrSparse, rueidisHit, redisRate}}
)

// keySet returns n keys of 16 bytes.
func keySet(n int) load.KeySet { return load.KeySet{Prefix: "key:", N: n} }

// newSparseKeys returns n keys that no other workload uses, whose windows would be longer.
func newSparseKeys(n int) load.Keys {
	return load.KeySet{Prefix: "few:", N: n}.Keys()
}
