package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// hitScale is the scale of the windows that are hit.
const hitScale = time.Hour

// batchSize is the number of records that are made or purged at once.
const batchSize = 256

// clientLoad is load that a client generates.
type clientLoad struct {
	cfg        throttr.Config
	workload   load.Workload
	keys       load.KeySet
	goroutines int
	client     client
	operation  load.Operation
	inserted   []inserted // by goroutine
}

// inserted is what one goroutine has inserted.
type inserted struct {
	load.KeySet
	_ [64]byte // keeps the memory of others off this cache line
}

// benchClient is what bench needs of a client.
type benchClient interface {
	maxHits() uint64
	increases(keys load.Keys) load.Operation
	queries(keys load.Keys) load.Operation
	inserts(nextKey func(worker int) string) load.Operation
	frames(load.Workload) load.Frames
	mixed(load.Mix) load.Frames
	insertAll(ctx context.Context, keys load.KeySet) error
	purgeAll(ctx context.Context, keys load.KeySet) error
}

func (l *clientLoad) prepare(ctx context.Context) (err error) {
	if l.client, err = connectTo(ctx, l.cfg); err != nil {
		return err
	}
	if l.workload == load.Insert {
		l.inserted = make([]inserted, l.goroutines)
		for i := range l.inserted {
			l.inserted[i].Sequence = l.keys.Share(i, l.goroutines)
		}
		l.operation = l.client.inserts(func(worker int) string {
			i := &l.inserted[worker]
			i.N++
			return i.Key(i.N - 1)
		})
		return nil
	}
	keys := l.keys.Keys()
	switch l.workload {
	case load.Hit:
		l.operation = l.hits(keys)
		return l.forEachKey(func(key string) error { // opens the windows
			_, err := l.client.limiter().Hit(ctx, key, hitScale, l.client.maxHits())
			return err
		})
	case load.Query:
		l.operation = l.client.queries(keys)
	default:
		l.operation = l.client.increases(keys)
	}
	return l.client.insertAll(ctx, l.keys)
}

// Measure implements load.Contender.
func (l *clientLoad) Measure(ctx context.Context, cfg load.Config) (load.Result, error) {
	cfg.Goroutines = l.goroutines
	return load.Run(ctx, cfg, l.operation)
}

func (l *clientLoad) warmUp(ctx context.Context, d time.Duration, report func(load.Progress)) error {
	return warmUp(ctx, l, d, report)
}

func (l *clientLoad) conns() int { return mostConns(l.client) }

// mostConns returns the number of connections of a client to one server, the largest of them.
func mostConns(c client) int {
	n := 0
	for _, s := range c.Stats().Servers {
		n = max(n, s.Conns)
	}
	return n
}

func (l *clientLoad) cleanUp(ctx context.Context) error {
	if l.client == nil {
		return nil
	}
	defer l.client.Close()
	l.drain(ctx)
	switch l.workload {
	case load.Hit:
		l.client.Close() // nothing is done to its windows from now on
		return purgeWindows(ctx, l.cfg, l.keys)
	case load.Insert:
		return load.ForEach(len(l.inserted), len(l.inserted), func(i int) error {
			return l.client.purgeAll(ctx, l.inserted[i].KeySet)
		})
	default:
		return l.client.purgeAll(ctx, l.keys)
	}
}

// forEachKey calls do with all keys, in up to 64 goroutines.
func (l *clientLoad) forEachKey(do func(key string) error) error {
	return load.ForEach(l.keys.N, min(l.goroutines, 64), func(i int) error { return do(l.keys.Key(i)) })
}

// drain waits, for a second at most, until the client has no requests: a request whose operation
// was interrupted could still make a record.
func (l *clientLoad) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for ctx.Err() == nil && slices.ContainsFunc(l.client.Stats().Servers, func(s throttr.ServerStats) bool {
		return s.InFlight > 0 || s.Waiting > 0 || s.Acquiring > 0
	}) {
		time.Sleep(time.Millisecond)
	}
}

// hits returns an operation that hits the window of a random key.
func (l *clientLoad) hits(keys load.Keys) load.Operation {
	limiter, limit := l.client.limiter(), l.client.maxHits()
	return func(ctx context.Context, worker int, i uint64) error {
		res, err := limiter.Hit(ctx, keys.Pick(worker, i), hitScale, limit)
		if err == nil && !res.Allowed {
			err = fmt.Errorf("a window is full: these values hold %d hits; use more --keys, a shorter --duration, or a server of a larger value size", limit)
		}
		return err
	}
}

var (
	errMissing = errors.New("a record is missing: it has expired, or another client has purged it")
	errExists  = errors.New("a record exists already")
)

// orMissing returns errMissing if a record was not found.
func orMissing(found bool, err error) error {
	if err == nil && !found {
		err = errMissing
	}
	return err
}

// maxHits returns a limit that leaves room for many hits in one request.
func (c typed[T]) maxHits() uint64 { return uint64(^T(0)) / 2 }

// increases returns an operation that adds 1 to a random counter.
func (c typed[T]) increases(keys load.Keys) load.Operation {
	return func(ctx context.Context, worker int, i uint64) error {
		return orMissing(c.Update(ctx, keys.Pick(worker, i), codec.Quota, codec.Increase, 1))
	}
}

// queries returns an operation that reads a random counter.
func (c typed[T]) queries(keys load.Keys) load.Operation {
	return func(ctx context.Context, worker int, i uint64) error {
		_, found, err := c.Query(ctx, keys.Pick(worker, i))
		return orMissing(found, err)
	}
}

// inserts returns an operation that makes a counter.
func (c typed[T]) inserts(nextKey func(worker int) string) load.Operation {
	return func(ctx context.Context, worker int, _ uint64) error {
		ok, err := c.Insert(ctx, nextKey(worker), 0, load.TTL[T]())
		if err == nil && !ok {
			err = errExists
		}
		return err
	}
}

func (c typed[T]) frames(w load.Workload) load.Frames { return load.FramesOf[T](w) }

func (c typed[T]) mixed(m load.Mix) load.Frames { return load.FramesOfMix[T](m) }

// insertAll makes counters. Those that exist stay as they are.
func (c typed[T]) insertAll(ctx context.Context, keys load.KeySet) error {
	return c.inBatches(ctx, keys, func(b *throttr.Batch[T], key string) { b.Insert(key, 0, load.TTL[T]()) })
}

// purgeAll purges those counters that exist.
func (c typed[T]) purgeAll(ctx context.Context, keys load.KeySet) error {
	return c.inBatches(ctx, keys, func(b *throttr.Batch[T], key string) { b.Purge(key) })
}

// purgeWindows purges the records of the windows of keys that only this program uses. No client
// uses them any more.
func purgeWindows(ctx context.Context, cfg throttr.Config, keys load.KeySet) error {
	return forEachServer(ctx, cfg, func(_ int, c client) error {
		var names []string
		err := each(c.List(ctx), func(r throttr.ListEntry) {
			if strings.Contains(r.Key, keys.Prefix()) {
				names = append(names, r.Key)
			}
		})
		if err != nil {
			return err
		}
		return load.ForEach(len(names), batchSize, func(i int) error {
			_, err := c.Purge(ctx, names[i])
			return err
		})
	})
}

// forEachServer calls do with a client of each server.
func forEachServer(ctx context.Context, cfg throttr.Config, do func(i int, c client) error) error {
	for i, server := range cfg.Servers {
		one := cfg
		one.Servers = []string{server}
		c, err := connectTo(ctx, one)
		if err != nil {
			return err
		}
		err = do(i, c)
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// inBatches makes a request for each key.
func (c typed[T]) inBatches(ctx context.Context, keys load.KeySet, add func(b *throttr.Batch[T], key string)) error {
	var b throttr.Batch[T]
	for first := 0; first < keys.N; first += batchSize {
		b.Reset()
		for i := first; i < min(keys.N, first+batchSize); i++ {
			add(&b, keys.Key(i))
		}
		if err := c.Do(ctx, &b); err != nil {
			return err
		}
	}
	return nil
}
