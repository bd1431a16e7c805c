package main

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/servicetime"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// The limit and the scale of sparse keys, most of whose hits open a window, and the number of goroutines
// that hit them.
const (
	sparseLimit      = 20
	sparseScale      = time.Second
	sparseGoroutines = 64
)

// windows is what hits did to windows, and what a server has done for them until it was quiet again.
type windows struct{ hits, denied, opened, requests, creations uint64 }

// perOpened returns a number per opened window.
func (w windows) perOpened(n uint64) float64 { return float64(n) / float64(w.opened) }

// opening returns the number of requests that opened windows, and removed them: all, aside from the UPDATE
// and the QUERY of each hit that was allowed in a window that was open.
func (w windows) opening() uint64 {
	further := w.hits - min(w.hits, w.opened+w.denied)
	return w.requests - min(w.requests, 2*further)
}

// serverTime returns how many nanoseconds a real server that has made many records takes for the requests
// over TCP, many at a time (H7).
func (w windows) serverTime() uint64 {
	creation := servicetime.Creation(servicetime.OldAge)
	return w.requests*uint64(servicetime.TCP.Request) + w.creations*uint64(creation)
}

// sparseClient hits sparse keys on the old server.
type sparseClient struct {
	*throttr.Client[uint32]
	limiter              *throttr.RateLimit
	hits, denied, opened atomic.Uint64
}

var throttrSparse = contender{
	name: "throttr, old server",
	does: "`RateLimit.Hit` on a server",
	start: func(ctx context.Context, s setup) (*instance, error) {
		client, err := connect(ctx, s.servers.old.addr)
		if err != nil {
			return nil, err
		}
		c := &sparseClient{Client: client, limiter: throttr.NewRateLimit(client.Backend(), patience)}
		started := &instance{do: c.do, close: func() { client.Close() }, windows: new(windows)}
		started.run = func(ctx context.Context, cfg load.Config, keys load.Keys) (res load.Result, err error) {
			if err = started.touch(ctx, keys, cfg.Goroutines); err == nil { // the second window: no key is new
				res, *started.windows, err = c.run(ctx, cfg, keys)
			}
			return res, err
		}
		return started, nil
	},
}

func (c *sparseClient) do(ctx context.Context, key string) (bool, error) {
	res, err := c.limiter.Hit(ctx, key, sparseScale, sparseLimit)
	if err != nil {
		return false, err
	}
	c.hits.Add(1)
	if !res.Allowed {
		c.denied.Add(1)
	}
	if res.Count == 1 {
		c.opened.Add(1)
	}
	return res.Allowed, nil
}

// run hits keys, and returns what all hits did, those of the warm-up included.
func (c *sparseClient) run(ctx context.Context, cfg load.Config, keys load.Keys) (res load.Result, w windows, err error) {
	before, err := c.awaitQuiet(ctx)
	if err != nil {
		return res, w, err
	}
	c.hits.Store(0)
	c.denied.Store(0)
	c.opened.Store(0)
	res, err = load.Run(ctx, cfg, func(ctx context.Context, worker int, i uint64) error {
		_, err := c.do(ctx, keys.Pick(worker, i))
		return err
	})
	if err != nil {
		return res, w, err
	}
	after, err := c.awaitQuiet(ctx)
	return res, windows{
		c.hits.Load(), c.denied.Load(), c.opened.Load(), after.requests - before.requests, after.creations - before.creations,
	}, err
}

// awaitQuiet waits until all windows have ended and the server is quiet, so that the requests that remove
// records belong to the windows that made them. It returns what the server has counted.
func (c *sparseClient) awaitQuiet(ctx context.Context) (last windows, err error) {
	const poll, quiet = 100 * time.Millisecond, 20 // requests per poll
	end := time.Now().Add(5*sparseScale + time.Second)
	for next := sparseScale; ; next = poll {
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
		infos, err := c.Info(ctx)
		if err != nil {
			return last, err
		}
		r := infos[0].Requests
		now := windows{requests: r.All.Total - r.Info.Total, creations: r.Insert.Total + r.Set.Total}
		if next == poll && now.requests-last.requests < quiet || time.Now().After(end) {
			return now, nil
		}
		last = now
	}
}

// sparseRequirements returns what hits of sparse keys must hold.
func (r *results) sparseRequirements() (all []requirement) {
	for _, keys := range r.plan.sparseKeys {
		opened := r.windows[measurement{sparse.name, throttrSparse.name, keys, sparseGoroutines}]
		what := fmt.Sprintf("`sparse`, %d keys, old server", keys)
		all = append(all,
			atMost(what+": INSERTs per opened window", 0, hundredths(each(opened, func(w windows) float64 { return w.perOpened(w.creations) }))),
			atMost(what+": requests to open a window", 8, each(opened, func(w windows) float64 { return w.perOpened(w.opening()) })),
		)
	}
	return all
}

// sparseRows returns the figures of sparse keys.
func (r *results) sparseRows() (all [][]string) {
	for _, keys := range r.plan.sparseKeys {
		for _, c := range sparse.contenders {
			m := measurement{sparse.name, c.name, keys, sparseGoroutines}
			of := func(f figure) float64 { return load.Median(r.each(m, f)) }
			per := func(n func(windows) uint64) float64 {
				return load.Median(each(r.windows[m], func(w windows) float64 { return w.perOpened(n(w)) }))
			}
			hits, time, ofHit := per(func(w windows) uint64 { return w.hits }), per(windows.serverTime), load.Median(r.redisCPU[m])
			if !math.IsNaN(time) {
				ofHit = time / hits
			}
			all = append(all, []string{
				c.name, fmt.Sprint(keys), count(of(perSecond)), duration(of(p50)), duration(of(p99)), decimal(hits),
				decimal(per(func(w windows) uint64 { return w.requests })), decimal(per(windows.opening)),
				decimal(per(func(w windows) uint64 { return w.creations })), duration(time), duration(ofHit),
			})
		}
	}
	return all
}
