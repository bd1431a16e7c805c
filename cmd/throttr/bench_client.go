package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/load"
)

// hitScale is the length of the windows that are hit.
const hitScale = time.Hour

// batchSize is how many records are made, or purged, at once.
const batchSize = 256

// loadClient is a client whose speed is measured.
type loadClient struct {
	cfg        throttr.Config
	workload   workload
	keys       keySet
	goroutines int
	client     client
	limiter    *throttr.RateLimit // of hits
	operation  load.Operation
	inserted   []tally // of each goroutine
}

// loads is what a client does to be measured.
type loads interface {
	mostHits() uint64
	increases(keys []string) load.Operation
	queries(keys []string) load.Operation
	inserts(next func(worker int) string) load.Operation
	rawOperation(workload) rawOperation
	insertAll(ctx context.Context, keys keySet) error
	purgeAll(ctx context.Context, keys keySet) error
}

// tally is what one goroutine inserts.
type tally struct {
	keySet
	_ [64]byte // keeps others' memory away
}

func (l *loadClient) prepare(ctx context.Context) (err error) {
	if l.client, err = connectTo(ctx, l.cfg); err != nil {
		return err
	}
	switch l.workload {
	case insertWorkload:
		l.inserted = make([]tally, l.goroutines)
		for i := range l.inserted {
			l.inserted[i].keySet = l.keys.share(i, l.goroutines)
		}
		l.operation = l.client.inserts(func(worker int) string {
			t := &l.inserted[worker]
			t.n++
			return t.key(t.n - 1)
		})
		return nil
	case hitWorkload:
		l.limiter = l.client.limiter()
		keys := l.keys.all()
		l.operation = l.hits(keys)
		return inParallel(keys, l.goroutines, func(key string) error { // opens the windows
			_, err := l.limiter.Hit(ctx, key, hitScale, l.client.mostHits())
			return err
		})
	case queryWorkload:
		l.operation = l.client.queries(l.keys.all())
	default:
		l.operation = l.client.increases(l.keys.all())
	}
	return l.client.insertAll(ctx, l.keys)
}

func (l *loadClient) measure(ctx context.Context, cfg load.Config) (load.Result, error) {
	cfg.Goroutines = l.goroutines
	return load.Run(ctx, cfg, l.operation)
}

// conns returns how many connections the client has, per server.
func (l *loadClient) conns() int {
	n := 0
	for _, s := range l.client.Stats().Servers {
		n = max(n, s.Conns)
	}
	return n
}

func (l *loadClient) clean(ctx context.Context) error {
	if l.client == nil {
		return nil
	}
	defer l.client.Close()
	l.settle(ctx)
	switch l.workload {
	case hitWorkload:
		return inParallel(l.keys.all(), l.goroutines, func(key string) error {
			_, err := l.limiter.Delete(ctx, key, hitScale)
			return err
		})
	case insertWorkload:
		var purges sync.WaitGroup
		errs := make([]error, len(l.inserted))
		for i := range l.inserted {
			purges.Go(func() { errs[i] = l.client.purgeAll(ctx, l.inserted[i].keySet) })
		}
		purges.Wait()
		return errors.Join(errs...)
	default:
		return l.client.purgeAll(ctx, l.keys)
	}
}

// settle waits, for a second at most, until nothing is under way: what an interrupt has left
// alone could still make a record.
func (l *loadClient) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && slices.ContainsFunc(l.client.Stats().Servers, func(s throttr.ServerStats) bool {
		return s.InFlight > 0 || s.Waiting > 0
	}) {
		<-tick.C
	}
}

// inParallel does something with all keys, so many at a time but 64 at most, and returns the
// first error.
func inParallel(keys []string, workers int, do func(key string) error) error {
	workers = min(workers, 64)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(keys) && errs[w] == nil; i += workers {
				errs[w] = do(keys[i])
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// hits returns an operation that hits the window of a key at random.
func (l *loadClient) hits(keys []string) load.Operation {
	limiter, limit := l.limiter, l.client.mostHits()
	return func(ctx context.Context, worker int, i uint64) error {
		res, err := limiter.Hit(ctx, keys[pick(len(keys), worker, i)], hitScale, limit)
		if err == nil && !res.Allowed {
			err = fmt.Errorf("a window is full: these values hold %d hits; use more -keys, a shorter -duration, or a server of a larger value size", limit)
		}
		return err
	}
}

// errMissing says that a record has gone while it was measured.
var errMissing = errors.New("a record is missing: somebody else has purged it, or it has expired")

// found returns err, or errMissing.
func found(ok bool, err error) error {
	if err == nil && !ok {
		err = errMissing
	}
	return err
}

// mostHits returns a limit that leaves enough headroom for many hits in one request.
func (c typed[T]) mostHits() uint64 { return uint64(^T(0)) / 2 }

// increases returns an operation that increases a counter at random.
func (c typed[T]) increases(keys []string) load.Operation {
	return func(ctx context.Context, worker int, i uint64) error {
		return found(c.Update(ctx, keys[pick(len(keys), worker, i)], codec.Quota, codec.Increase, 1))
	}
}

// queries returns an operation that reads a counter at random.
func (c typed[T]) queries(keys []string) load.Operation {
	return func(ctx context.Context, worker int, i uint64) error {
		_, ok, err := c.Query(ctx, keys[pick(len(keys), worker, i)])
		return found(ok, err)
	}
}

// errThere says that a record was there that should be new.
var errThere = errors.New("a record is there already")

// inserts returns an operation that makes a counter under a key that next returns.
func (c typed[T]) inserts(next func(worker int) string) load.Operation {
	return func(ctx context.Context, worker int, _ uint64) error {
		ok, err := c.Insert(ctx, next(worker), 0, benchTTLOf[T]())
		if err == nil && !ok {
			err = errThere
		}
		return err
	}
}

func benchTTLOf[T codec.Value]() codec.TTL[T] {
	return codec.TTL[T]{Amount: T(benchTTL / time.Hour), Unit: codec.Hours}
}

// insertAll makes counters.
func (c typed[T]) insertAll(ctx context.Context, keys keySet) error {
	return c.inBatches(ctx, keys.n, func(b *throttr.Batch[T], i int) { b.Insert(keys.key(i), 0, benchTTLOf[T]()) })
}

// purgeAll purges counters, as far as they are there.
func (c typed[T]) purgeAll(ctx context.Context, keys keySet) error {
	return c.inBatches(ctx, keys.n, func(b *throttr.Batch[T], i int) { b.Purge(keys.key(i)) })
}

// inBatches makes n requests.
func (c typed[T]) inBatches(ctx context.Context, n int, add func(b *throttr.Batch[T], i int)) error {
	var b throttr.Batch[T]
	for first := 0; first < n; first += batchSize {
		b.Reset()
		for i := first; i < min(n, first+batchSize); i++ {
			add(&b, i)
		}
		if err := c.Do(ctx, &b); err != nil {
			return err
		}
	}
	return nil
}
