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
	"github.com/throttr-go/throttr/inspect"
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
}

// benchClient is what bench needs of a client.
type benchClient interface {
	maxHits() uint64
	increases(keys load.Keys) load.Operation
	queries(keys load.Keys) load.Operation
	frames(load.Workload) load.Frames
	insertAll(ctx context.Context, keys load.KeySet) error
	purgeAll(ctx context.Context, keys load.KeySet) error
}

func (l *clientLoad) prepare(ctx context.Context) (err error) {
	if l.client, err = connectTo(ctx, l.cfg); err != nil {
		return err
	}
	keys := l.keys.Keys()
	switch l.workload {
	case load.Hit:
		l.operation = l.hits(keys)
		return load.ForEach(l.keys.N, min(l.goroutines, 64), func(i int) error { // opens the windows
			_, err := l.client.limiter().Hit(ctx, l.keys.Key(i), hitScale, l.client.maxHits())
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

// conns returns the largest number of connections to one server.
func (l *clientLoad) conns() (n int) {
	for _, s := range l.client.Stats().Servers {
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
	if l.workload == load.Hit {
		l.client.Close() // nothing is done to its windows from now on
		return purgeWindows(ctx, l.cfg, l.keys)
	}
	return l.client.purgeAll(ctx, l.keys)
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

var errMissing = errors.New("a record is missing: it has expired, or another client has purged it")

// orMissing returns errMissing if a record was not found.
func orMissing(found bool, err error) error {
	if err == nil && !found {
		err = errMissing
	}
	return err
}

// maxHits returns a limit that leaves room for many hits in one request.
func (c typed[T]) maxHits() uint64 { return min(uint64(^T(0))/2, throttr.Unlimited-1) }

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

func (c typed[T]) frames(w load.Workload) load.Frames { return load.FramesOf[T](w) }

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
		err := each(c.List(ctx), func(r inspect.Record) {
			if strings.Contains(r.Key, keys.Prefix) {
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
