package main

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// sparseLoad is load of hits on short windows of many keys, most of which open a window.
type sparseLoad struct {
	cfg        throttr.Config
	keys       load.KeySet
	goroutines int
	scale      time.Duration
	limit      uint64
	client     client
	tallies    []tally      // by goroutine
	last       load.Windows // of the last measurement
	idle       time.Time    // when it ended
}

// tally counts what the hits of one goroutine did to windows.
type tally struct {
	hits, denied, opened uint64
	_                    [64]byte // keeps the memory of others off this cache line
}

func (l *sparseLoad) prepare(ctx context.Context) (err error) {
	l.tallies = make([]tally, l.goroutines)
	l.client, err = connectTo(ctx, l.cfg)
	return err
}

// warmUp hits keys as the measurement does.
func (l *sparseLoad) warmUp(ctx context.Context, d time.Duration, report func(load.Progress)) error {
	return warmUp(ctx, l, d, report)
}

// maxSparseIdle is how long keys are not hit before the client may remove their records.
const maxSparseIdle = 5 * time.Second

// renew opens two windows of each key, so that no key is new to the servers.
func (l *sparseLoad) renew(ctx context.Context) error {
	for range 2 {
		err := load.ForEach(l.keys.N, l.goroutines, func(i int) (err error) {
			for range 3 { // a busy server can be too slow for a window of a new key
				if _, err = l.client.limiter().Hit(ctx, l.keys.Key(i), l.scale, l.limit); err == nil || ctx.Err() != nil {
					break
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := pause(ctx, l.scale); err != nil {
			return err
		}
	}
	return nil
}

// Measure implements load.Contender. The warm-up takes at least two scales: the windows of the
// turn before have ended, and the first hit of each key opens one. While others had their turns,
// records may have been removed.
func (l *sparseLoad) Measure(ctx context.Context, cfg load.Config) (res load.Result, err error) {
	count := l.requests
	if time.Since(l.idle) > maxSparseIdle {
		if err := l.renew(ctx); err != nil {
			return res, err
		}
		count = l.awaitQuiet
	}
	defer func() { l.idle = time.Now() }()
	before, err := count(ctx)
	if err != nil {
		return res, err
	}
	clear(l.tallies)
	cfg.Goroutines, cfg.Warmup = l.goroutines, max(cfg.Warmup, 2*l.scale)
	keys, limiter := l.keys.Keys(), l.client.limiter()
	res, err = load.Run(ctx, cfg, func(ctx context.Context, worker int, i uint64) error {
		r, err := limiter.Hit(ctx, keys.Pick(worker, i), l.scale, l.limit)
		if err == nil {
			l.tallies[worker].add(r)
		}
		return err
	})
	if err != nil {
		return res, err
	}
	after, err := l.awaitQuiet(ctx)
	if err != nil {
		return res, err
	}
	w := load.Windows{Requests: after.Minus(before)}
	for _, t := range l.tallies {
		w.Hits, w.Denied, w.Opened = w.Hits+t.hits, w.Denied+t.denied, w.Opened+t.opened
	}
	res.Windows, l.last = &w, w
	return res, nil
}

func (t *tally) add(r throttr.Result) {
	t.hits++
	if !r.Allowed {
		t.denied++
	}
	if r.Count == 1 {
		t.opened++
	}
}

// awaitQuiet waits until all windows have ended and the servers are quiet, so that the requests
// that remove records belong to the windows that made them. It returns the requests that the
// servers have counted. It waits for some scales at most: there may be other clients.
func (l *sparseLoad) awaitQuiet(ctx context.Context) (load.Requests, error) {
	const poll, quiet = 100 * time.Millisecond, 20 // requests per poll
	end := time.Now().Add(4*l.scale + time.Second)
	if err := pause(ctx, l.scale); err != nil {
		return load.Requests{}, err
	}
	for {
		before, err := l.requests(ctx)
		if err != nil {
			return before, err
		}
		if err := pause(ctx, poll); err != nil {
			return before, err
		}
		after, err := l.requests(ctx)
		if err != nil || after.Minus(before).All() < quiet || time.Now().After(end) {
			return after, err
		}
	}
}

// requests returns the requests that all servers have counted.
func (l *sparseLoad) requests(ctx context.Context) (sum load.Requests, err error) {
	infos, err := l.client.Info(ctx)
	for _, i := range infos {
		sum = sum.Plus(load.RequestsOf(i.Requests))
	}
	return sum, err
}

func (l *sparseLoad) conns() int { return mostConns(l.client) }

// mix returns the requests that one opened window took in the last measurement.
func (l *sparseLoad) mix() load.Mix { return load.MixOf(l.last) }

func (l *sparseLoad) cleanUp(ctx context.Context) error {
	if l.client == nil {
		return nil
	}
	l.client.Close()
	return purgeWindows(ctx, l.cfg, l.keys)
}

// pause waits for d. It returns the cause of ctx's end if that comes first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reportWindows prints what the hits of sparse rows did to windows.
func (b *bench) reportWindows(out *output, rows []*row, results []load.Result) {
	if out.json != nil {
		return // the records of the rows contain it
	}
	out.table("per window", ">hits", ">requests", ">to open", ">INSERT", ">UPDATE", ">QUERY", ">PURGE", ">server")
	for i, r := range rows {
		w := results[i].Windows
		if w == nil {
			continue
		}
		per := func(n uint64) string { return fmt.Sprintf("%.2f", w.PerWindow(float64(n))) }
		q := w.Requests
		out.add(nil, b.title(r), per(w.Hits), per(q.All()), per(w.Opening()), per(q.Creations()), per(q.Update), per(q.Query), per(q.Purge),
			load.FormatDuration(time.Duration(w.PerWindow(float64(q.ServerTime())))))
	}
}
