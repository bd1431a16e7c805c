// Package memory keeps rate-limit windows in the memory of the process: exact under any
// concurrency, without a server, and without an allocation per hit. Processes that share a
// limit need a server instead.
//
//	limiter := throttr.NewRateLimit(memory.New())
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// The memory is bounded, whatever the number and the length of the keys. Windows that are
// over are removed every minute, see [WithCleanPeriod]. If there are [WithMaxKeys] windows, new
// keys share counts, or replace other ones, see [Overflow].
//
// The package registers the scheme memory for throttr.Open: memory://?max_keys=100000.
package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Backend is a [window.Backend] in memory. Make one with [New].
//
// Each window is in one of the shards, which has a mutex that guards it. All else is constant
// after New, or atomic, or guarded by cleaning.
//
// An error of a call is that of its ctx, or matches [window.ErrFull] (see [Overflow]),
// [window.ErrClosed], or is that of Check. In each case, nothing was counted.
type Backend struct {
	window.Unimplemented
	options
	clock      clock
	seed       maphash.Seed
	masks      words  // of the hash of a short key
	secret     string // part of the hash of a long key
	shards     []shard
	shardMax   int      // windows per shard
	sharedKeys []string // of shared records: see shared.go
	errFull    error    // ErrFull, with the bound
	errShared  error    // ErrFull, for a Reset of a key that shares a count
	errLogs    error    // ErrFull, for too many times in logs
	failed     atomic.Uint64
	ledger     func() *ledger.Ledger // of places in flight

	cleaning chan struct{} // has an element during the cleaning that is due, and while cleaner or closed changes
	cleaner  *time.Timer   // nil: there is none
	closed   bool
}

var _ window.BackendCloser = (*Backend)(nil)

// New returns an empty backend. It removes windows that are over until it is closed, or nobody refers to
// it any more. In a bubble of testing/synctest, make the backend in the bubble, or use
// WithClock(time.Now). New panics if an option is nil.
func New(opts ...Option) *Backend {
	b := &Backend{options: optionsOf(opts), seed: maphash.MakeSeed(), secret: rand.Text(), cleaning: make(chan struct{}, 1)}
	b.masks = words{maphash.String(b.seed, "first"), maphash.String(b.seed, "last")}
	b.clock.init(b.now)
	b.errFull = fmt.Errorf("%w: at most %d windows", window.ErrFull, b.maxKeys)
	b.errShared = fmt.Errorf("%w: others share its count", b.errFull)
	b.errLogs = fmt.Errorf("%w: at most %d hits in sliding logs", window.ErrFull, b.maxTimes)
	b.shards = make([]shard, shardsFor(b.maxKeys))
	b.shardMax = b.maxKeys / len(b.shards)
	b.setShared()
	for i := range b.shards {
		s := &b.shards[i]
		s.firstEnd, s.index = math.MaxInt64, uint16(i)
		s.log = b.newLog()
		s.table.Store(noTable)
	}
	b.ledger = sync.OnceValue(b.newLedger)
	b.startCleaner()
	return b
}

// shardsFor returns the number of shards for maxKeys keys: a power of two, up to 256. With few
// keys per shard, the first shard would be full long before all of them are.
func shardsFor(maxKeys int) int {
	shards := 1
	for shards < 256 && maxKeys/(2*shards) >= 1024 {
		shards *= 2
	}
	return shards
}

// Close drops all windows. Later calls fail with [window.ErrClosed]. Close always returns nil. If a
// cleaning is running, Close waits for its end.
func (b *Backend) Close() error {
	b.stopCleaner()
	b.ledger().Close()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.all(func(r *record) bool {
			s.drop(r)
			return true
		})
		s.compact(b)
		s.closed = true
		s.mu.Unlock()
	}
	return nil
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
	store := window.StoreStats{Name: "memory", Errors: b.failed.Load()}
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.all(func(r *record) bool {
			s.count(r)
			return true
		})
		store.Calls += s.calls
		s.mu.Unlock()
	}
	return window.Stats{Stores: []window.StoreStats{store}, Windows: b.Len()}
}

// Len returns the number of windows, including those that are over and not removed yet. Shared counts
// are no windows, see [Share].
func (b *Backend) Len() int {
	n := 0
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		n += s.windows
		s.mu.Unlock()
	}
	return n
}

// Check implements [window.Backend]. All algorithms are supported. Sliding windows have a Max of at most
// 2^48-1, sliding logs of at most [WithMaxLog].
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	if err := limits.Check(l); err != nil {
		return window.Traits{}, err
	}
	most := algorithms[l.Algorithm].most(b)
	if l.Max > most {
		return window.Traits{}, &window.RangeError{
			Field: "Max", Value: fmt.Sprint(l.Max), Bound: fmt.Sprintf("at most %d with a %v", most, l.Algorithm),
		}
	}
	if most == window.Unlimited {
		most = 0 // what is larger is no number
	}
	return window.Traits{MaxCount: most}, nil
}

// check returns the error of a call that must not be made.
func (b *Backend) check(ctx context.Context, l *window.Limit, n uint64) error {
	if _, err := b.Check(*l); err != nil {
		return err
	}
	if err := limits.CheckNumber("N", n); err != nil {
		return err
	}
	return ctx.Err()
}

// operation is what a call does with a window. Its text is the name of the call.
type operation string

const (
	hit    operation = "hit"
	take   operation = "take"
	charge operation = "charge"
	set    operation = "set"
	peek   operation = "peek"
)

// Hit implements [window.Backend]. Every hit of a fixed or aligned window is counted.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.take(ctx, hit, key, &l, n)
}

// Take implements [window.Backend].
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.take(ctx, take, key, &l, n)
}

// take makes a hit or a take.
func (b *Backend) take(ctx context.Context, op operation, key string, l *window.Limit, n uint64) (w window.Window, err error) {
	if n-1 < l.Max && b.check(ctx, l, n) == nil {
		o := fastpath.Take | exact
		if op == hit {
			o = fastpath.Hit | exact
		}
		count, left, retry, end, id, granted, ok := (*decider)(b).Decide(ctx, key, l.Algorithm, l.Max, l.Scale, n, o, l.Burst, l.Name)
		if ok {
			w.Count, w.Left, w.ExpiresAt, w.ID = count, left, end, id
			if !granted && (op == take || l.Algorithm.Rolling()) {
				w.Refused, w.RetryAfter = true, retry
			}
			return w, nil
		}
	}
	return b.call(ctx, op, key, l, n)
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.call(ctx, charge, key, &l, n)
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.call(ctx, peek, key, &l, n)
}

// Set implements [window.Backend]. If the key shares a count, Set only makes it larger: see [Share].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.call(ctx, set, key, &l, n)
}

// call makes a call that has one window.
func (b *Backend) call(ctx context.Context, op operation, key string, l *window.Limit, n uint64) (w window.Window, err error) {
	w, err = b.use(ctx, op, key, l, n)
	return w, b.fail(string(op), key, err)
}

// use is call, with an error that does not say what failed.
func (b *Backend) use(ctx context.Context, op operation, key string, l *window.Limit, n uint64) (w window.Window, err error) {
	if err := b.check(ctx, l, n); err != nil {
		return w, err
	}
	var x access
	x.shard = b.locate(key, l.Algorithm, l.Scale, l.Name, &x.id)
	x.shard.mu.Lock()
	if err = x.shard.begin(b, 1, x.id.textLen()); err == nil {
		x.load(b)
		err = x.do(b, op, l, n, &w)
		x.release()
	}
	x.shard.mu.Unlock()
	return w, err
}

// GiveBack implements [window.Backend]. A count that is as large as possible stays as it is.
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (given bool, err error) {
	if err := b.check(ctx, &l, n); err != nil {
		return false, b.fail("give back", key, err)
	}
	var x access
	x.shard = b.locate(key, l.Algorithm, l.Scale, l.Name, &x.id)
	x.shard.mu.Lock()
	defer x.shard.mu.Unlock()
	if err := x.shard.begin(b, 1, x.id.textLen()); err != nil {
		return false, b.fail("give back", key, err)
	}
	x.load(b)
	defer x.release()
	return x.giveBack(id, n), nil
}

// Reset implements [window.Backend]. If the key shares a count, the error matches [window.ErrFull]: see
// [Share].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	err := b.check(ctx, &l, 0)
	if err == nil {
		var k windowID
		err = b.locate(key, l.Algorithm, l.Scale, l.Name, &k).reset(b, &k)
	}
	return b.fail("reset", key, err)
}

// Delete implements [window.Backend]. It examines every window of one shard, of up to 256. Errors are
// those of [Backend.Reset]: if the key shares a count, its own windows have been ended nevertheless.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	for _, scale := range scales {
		if err := limits.CheckScale(scale); err != nil {
			return 0, b.fail("delete", key, err)
		}
	}
	if err = ctx.Err(); err == nil {
		var k windowID
		n, err = b.locate(key, 0, 0, "", &k).delete(b, k.key, scales)
	}
	return n, b.fail("delete", key, err)
}
