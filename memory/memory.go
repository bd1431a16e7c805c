// Package memory keeps rate-limit windows in the memory of the process: exact under any
// concurrency, without a server, and without an allocation per hit. Processes that share a
// limit need a server instead.
//
//	limiter := throttr.NewRateLimit(memory.New())
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// The memory is bounded, whatever the number and the length of the keys. Windows that are
// over are removed every minute, see [WithCleanPeriod]. If there are [WithMaxKeys] windows, new
// keys are denied.
//
// The package registers the scheme memory for throttr.Open: memory://?max_keys=100000.
//
// A key's hash selects a shard, which is a mutex and a table of records. A record is what is counted of a key and
// limit. What a call does with it is in package internal/algorithm.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"time"
	"weak"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// Backend is a [window.Backend] in memory. Make one with [New].
//
// An error of a call is that of its ctx, or matches [window.ErrFull] (see [WithMaxKeys]),
// [window.ErrClosed], or is that of Check. In each case, nothing was counted.
type Backend struct {
	window.Unimplemented
	options
	clock   *clock
	seed    maphash.Seed
	shards  []shard
	errFull error          // ErrFull, with the bounds
	others  outage.Calls   // that no shard counts: those that have failed, and rare ones
	ledger  *ledger.Ledger // of places in flight

	cleaning chan struct{} // has an element during the cleaning that is due, and while cleaner is used
	cleaner  *time.Timer
}

var _ window.BackendCloser = (*Backend)(nil)

// New returns an empty backend. It removes windows that are over until it is closed, or nobody refers to
// it any more. In a bubble of testing/synctest, make the backend in the bubble, or use
// WithClock(time.Now). New panics if an option is nil.
func New(opts ...Option) *Backend {
	b := &Backend{seed: maphash.MakeSeed(), cleaning: make(chan struct{}, 1)}
	api.Apply("memory: New", &b.options, opts)
	b.cleanPeriod = cmp.Or(b.cleanPeriod, time.Minute)
	b.maxKeys = cmp.Or(b.maxKeys, DefaultMaxKeys)
	b.maxLog = cmp.Or(b.maxLog, DefaultMaxLog)
	b.clock = newClock(b.now)
	b.errFull = fmt.Errorf("%w: at most %d windows, and %d hits in sliding logs for each of them",
		window.ErrFull, b.maxKeys, timesPerKey)
	b.shards = make([]shard, shardsFor(b.maxKeys))
	maxCount := b.maxKeys / len(b.shards)
	maxTimes := max(timesPerKey*maxCount, 4*int(b.maxLog)) // a log that grows is never larger
	for i := range b.shards {
		b.shards[i] = shard{index: i, maxCount: maxCount, maxTimes: maxTimes, maxLog: b.maxLog}
		b.shards[i].clear()
	}
	clock := b.clock // the ledger does not refer to b, which can be freed while places are held
	b.ledger = ledger.New(b.maxKeys, func() time.Duration { return time.Duration(clock.now().Now) })
	weakly := weak.Make(b)
	b.cleaning <- struct{}{}
	b.cleaner = time.AfterFunc(b.cleanPeriod, func() { // it does not refer to b, so that b ends when nobody else does
		if b := weakly.Value(); b != nil {
			b.clean()
		}
	})
	<-b.cleaning
	return b
}

// shardsFor returns the number of shards for maxKeys keys: a power of two. With few keys for each, the first would be
// full long before all of them are. More than the processors use at a time only need room in their caches.
func shardsFor(maxKeys int) int {
	shards := 1
	for shards < min(maxShards, 32*runtime.GOMAXPROCS(0)) && maxKeys/(2*shards) >= 1024 {
		shards *= 2
	}
	return shards
}

// Close drops all windows. Later calls fail with [window.ErrClosed]. Close always returns nil. If a
// cleaning is running, Close waits for its end.
func (b *Backend) Close() error {
	b.cleaning <- struct{}{}
	defer func() { <-b.cleaning }()
	b.cleaner.Stop()
	b.ledger.Close()
	b.each(func(s *shard) {
		s.clear()
		s.closed = true
	})
	return nil
}

// each calls f with each shard, the mutex locked.
func (b *Backend) each(f func(s *shard)) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		f(s)
		s.mu.Unlock()
	}
}

// Ping returns nil, unless ctx has ended or the backend is closed.
func (b *Backend) Ping(ctx context.Context) error {
	s := &b.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return window.ErrClosed
	}
	return ctx.Err()
}

// Stats implements [window.BackendCloser]. A TakeAll is one call. Windows is [Backend.Len].
func (b *Backend) Stats() window.Stats {
	store := b.others.Stats("memory")
	b.each(func(s *shard) { store.Calls += s.calls })
	return window.Stats{Stores: []window.StoreStats{store}, Windows: b.Len()}
}

// Len returns the number of windows, including those that are over and not removed yet.
func (b *Backend) Len() (n int) {
	b.each(func(s *shard) { n += s.count })
	return n
}

// Check implements [window.Backend]. All algorithms are supported. Sliding logs have a Max of at most [WithMaxLog].
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	return algorithm.Traits(&l, b.maxLog)
}

// Delete implements [window.Backend].
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	for _, scale := range scales {
		if err := limits.CheckScale(scale); err != nil {
			return 0, b.after("delete", key, err)
		}
	}
	if err := b.Ping(ctx); err != nil {
		return 0, b.after("delete", key, err)
	}
	k, s := b.locate(key, &window.Limit{})
	look := func(r *row, at algorithm.Time) {
		if !r.hasKey(&k) || len(scales) > 0 && (r.unit != 0 || !slices.Contains(scales, r.Scale)) {
			return
		}
		if r.left(at) > 0 {
			n++
		}
		s.remove(r)
	}
	b.walk(s, look, func() bool { return true })
	return n, b.after("delete", key, nil)
}

// Exchange implements [window.Backend]. Up to [WithMaxKeys] keys and names have places in flight, beside as
// many windows. Places of package inflight have no lease on a Backend.
func (b *Backend) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	if err := b.Ping(ctx); err != nil {
		return b.after("exchange", "", err)
	}
	for i := range claims {
		p, wake := b.ledger.Exchange(&claims[i])
		if wake != nil {
			wake()
		}
		if p.Err != nil {
			p.Err = &api.CallError{Package: "memory", Call: "exchange", Key: claims[i].Key, Err: p.Err}
		}
		places[i] = p
	}
	return b.after("exchange", "", nil)
}

// Ledger is for package inflight, whose places on a Backend have no lease.
func (b *Backend) Ledger() *ledger.Ledger { return b.ledger }

// after is called after each call that no shard has counted: it counts the call, and adds its name and key to the
// error. It returns nil for nil.
func (b *Backend) after(call, key string, err error) error {
	b.others.Count(err)
	if err == nil {
		return nil
	}
	return &api.CallError{Package: "memory", Call: call, Key: key, Err: err}
}

// clean makes the cleaning that is due, and plans the next one, until the backend is closed.
func (b *Backend) clean() {
	b.cleaning <- struct{}{}
	defer func() { <-b.cleaning }()
	if b.Ping(context.Background()) == nil {
		b.Clean()
		b.cleaner.Reset(b.cleanPeriod)
	}
}

// Clean removes the windows that have been over for KeyOlderThan, and returns their number. The
// backend calls it every CleanPeriod. If time is virtual, call it yourself.
func (b *Backend) Clean() (removed int) {
	for i := range b.shards {
		s := &b.shards[i]
		var dropped []window.Listed // if there is a BeforeDrop
		b.walk(s, func(r *row, at algorithm.Time) {
			left := r.left(at)
			switch {
			case left > 0:
				times := r.Log.Times()
				r.Log.Shrink()
				s.times += r.Log.Times() - times
				return
			case -left < b.keyOlderThan:
				return
			case b.beforeDrop != nil:
				dropped = append(dropped, r.listed(at))
			}
			s.remove(r)
			removed++
		}, func() bool {
			if len(dropped) > 0 {
				b.beforeDrop(dropped)
				dropped = nil
			}
			return true
		})
	}
	return removed
}
