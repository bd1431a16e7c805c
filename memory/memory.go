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
package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

var (
	// ErrFull says that there is no room for a window or a shared count: see [Share]. It matches
	// window.ErrFull.
	ErrFull = fmt.Errorf("memory: %w", window.ErrFull)
	// ErrClosed says that the backend has been closed. It matches window.ErrClosed.
	ErrClosed = fmt.Errorf("memory: %w", window.ErrClosed)
)

// Backend is a [window.Backend] in memory. Make one with [New].
//
// Each window is in one of the shards, which has a mutex that guards it. All else is constant
// after New, or atomic.
type Backend struct {
	options
	origin     time.Time // the times of entries are nanoseconds since origin
	system     bool      // the clock is that of the system
	aligned    bool      // windows depend on the wall clock
	rolling    bool      // the algorithm is a rolling one: see rolling.go
	coarse     coarseClock
	seed       maphash.Seed
	secret     string // part of the hash of a long key
	shards     []shard
	shardMax   int      // windows per shard
	sharedKeys []string // of shared records: see shared.go
	errFull    error    // ErrFull, with the bound
	errShared  error    // ErrFull, for a Reset of a key that shares a count
	errLogs    error    // ErrFull, for too many times in logs
	closed     chan struct{}
	closeOnce  sync.Once
	cleaner    sync.WaitGroup
}

var (
	_ window.Backend = (*Backend)(nil)
	_ window.Taker   = (*Backend)(nil)
)

// New returns an empty backend. It has a goroutine, which [Backend.Close] stops. In a bubble of
// testing/synctest, make the backend in the bubble, or use WithClock(time.Now). New panics if
// an option is nil.
func New(opts ...Option) *Backend {
	b := &Backend{
		options: options{cleanPeriod: time.Minute, maxKeys: DefaultMaxKeys},
		seed:    maphash.MakeSeed(),
		secret:  rand.Text(),
		closed:  make(chan struct{}),
	}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("memory: New: option %d is nil", i+1))
		}
		opt(&b.options)
	}
	b.rolling = b.algorithm.Rolling()
	b.aligned = b.algorithm == window.Aligned || b.algorithm == window.Sliding
	if b.system = b.clock == nil; b.system {
		b.clock = time.Now
	}
	b.origin = b.clock()
	b.coarse.last.Store(stopped)
	if b.system && !b.aligned && !b.rolling {
		b.coarse.enable(b.origin)
	}
	b.errFull = fmt.Errorf("%w: at most %d", ErrFull, b.maxKeys)
	b.errShared = fmt.Errorf("%w: others share its count", b.errFull)
	b.shards = make([]shard, shardsFor(b.maxKeys))
	b.shardMax = b.maxKeys / len(b.shards)
	b.setShared()
	b.setBounds()
	for i := range b.shards {
		s := &b.shards[i]
		s.windows, s.firstEnd, s.index = newTables(), math.MaxInt64, uint16(i)
		s.reference = timestamp{time: b.origin}
		s.lastEnd = s.reference
		s.log = b.newLog()
	}
	b.cleaner.Go(b.cleanLoop)
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

// Close stops the goroutine and drops all windows. Later calls fail with [ErrClosed]. Close
// always returns nil. If a cleaning is running, Close waits for its end.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() { close(b.closed) })
	b.cleaner.Wait()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.windows, s.log, s.closed = newTables(), b.newLog(), true
		s.mu.Unlock()
	}
	return nil
}

// Hit implements [window.Backend]. Every hit is counted, except with a rolling algorithm. The error
// is that of ctx, matches [window.ErrScale] or [window.ErrRange], or is [ErrFull] or [ErrClosed];
// in each case, the hit was not counted.
func (b *Backend) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (window.Window, error) {
	if b.rolling {
		w, _, err := b.hitRolling(ctx, "hit", key, scale, limit, increment)
		return w, err
	}
	return b.add(ctx, "hit", key, scale, increment)
}

// add counts an increment for a call of Hit or Inc.
func (b *Backend) add(ctx context.Context, call, key string, scale time.Duration, increment uint64) (w window.Window, err error) {
	if err := check(ctx, scale); err != nil {
		return w, failed(call, key, err)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	// The coarse clock is for hits within the limit. Inc has no limit, and its time is exact.
	e, now, err := b.hit(s, k, 0, increment)
	if err != nil {
		s.mu.Unlock()
		return w, failed(call, key, err)
	}
	end := s.timeOf(e.end())
	s.mu.Unlock()
	w.Count, w.ExpiresAt, w.Left, w.ID = e.count, end, minus(e.end(), now), e.id()
	w.StartedAt, w.UpdatedAt = end.Add(minus(e.start, e.end())), end.Add(-w.Left)
	return w, nil
}

// Inc implements [window.Backend]. A count stays at the largest uint64. Errors are those of
// [Backend.Hit].
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	if b.rolling {
		return b.incRolling(ctx, "inc", key, scale, increment, false)
	}
	return b.add(ctx, "inc", key, scale, increment)
}

// Get implements [window.Backend]. The error is that of ctx, matches [window.ErrScale], or is
// [ErrClosed].
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (w window.Window, err error) {
	defer func() { err = failed("get", key, err) }()
	if err := check(ctx, scale); err != nil {
		return w, err
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.rolling {
		return w, b.getRolling(s, k, &w)
	}
	if s.closed {
		return w, ErrClosed
	}
	r, now := s.find(k), s.now(b)
	if r == nil {
		_, r = s.findShared(b, k)
	}
	if r != nil {
		if e := r.entry(); e.active(now) {
			s.describe(&w, &e, now)
		}
	}
	return w, nil
}

// Set implements [window.Backend]. If the key shares a count, Set only makes it larger: see [Share].
// Errors are those of [Backend.Hit].
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (w window.Window, err error) {
	if b.rolling {
		return b.incRolling(ctx, "set", key, scale, count, true)
	}
	defer func() { err = failed("set", key, err) }()
	if err := check(ctx, scale); err != nil {
		return w, err
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	r, now := s.find(k), s.now(b)
	if r == nil {
		if _, r = s.findShared(b, k); r != nil { // others count there, so the count only gets larger
			e := r.entry()
			e.add(count-min(count, e.count), now)
			r.setCount(&e)
			s.describe(&w, &e, now)
			return w, nil
		}
	}
	e, err := b.open(s, k, r, count, now)
	if err == nil {
		s.describe(&w, &e, now)
	}
	return w, err
}

// Reset implements [window.Backend]. If the key shares a count, the error is [ErrFull]: see [Share]. Other
// errors are those of [Backend.Get].
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	_, err := b.delete(ctx, key, scale)
	return failed("reset", key, err)
}

// Delete implements [window.Backend]. Without scales, it examines every window of one shard, of
// up to 256, whose key has about the same length. Errors are those of [Backend.Reset].
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	n, err := b.delete(ctx, key, scales...)
	return n, failed("delete", key, err)
}

// delete is Delete, whose errors do not name the call.
func (b *Backend) delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	if len(scales) == 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		s, k := b.locate(key, 0)
		return s.removeKey(b, k.key)
	}
	n := 0
	for _, scale := range scales {
		if err := check(ctx, scale); err != nil {
			return n, err
		}
		s, k := b.locate(key, scale)
		ok, err := s.remove(b, k)
		if err != nil {
			return n, err
		}
		if ok {
			n++
		}
	}
	return n, nil
}

// Len returns the number of windows, including those that are over and not removed yet. Shared counts
// are no windows, see [Share].
func (b *Backend) Len() int {
	n := 0
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		n += s.windows.len()
		s.mu.Unlock()
	}
	return n
}

// open opens a window of k at now, in record r. If r is nil, it inserts a record, and makes
// room for it if necessary. The shard's mutex is held.
func (b *Backend) open(s *shard, k id, r record, count uint64, now int64) (entry, error) {
	if s.closed {
		return entry{}, ErrClosed
	}
	if r == nil {
		var err error
		if k, r, err = b.place(s, k, now); err != nil {
			return entry{}, err
		}
	}
	if s.generation++; s.generation == 0 {
		s.generation++ // so that no id is 0
	}
	e := entry{start: now, count: count, scale: k.scale, meta: uint64(s.generation) << 32}
	if b.algorithm == window.Aligned {
		e.start = s.aligned(b, now, k.scale)
	}
	e.update(now)
	r.set(e)
	s.firstEnd = min(s.firstEnd, e.end())
	return e, nil
}

// check returns the error of a call that must not be made.
func check(ctx context.Context, scale time.Duration) error {
	if scale < window.MinScale {
		return scaleError(scale)
	}
	return ctx.Err()
}

func scaleError(scale time.Duration) error {
	return fmt.Errorf("memory: %w", window.CheckScale(scale))
}
