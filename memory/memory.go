// Package memory keeps rate-limit windows in the program's own memory: exact under any
// concurrency, with no server and no allocation per hit. It is for one process; several
// that share a limit need a server.
//
//	limiter := throttr.NewRateLimit(memory.New())
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// Its size is bounded, whatever keys come and however long they are. Windows that are over
// are removed every minute, see [WithCleanPeriod]; and when there are [WithMaxKeys] windows,
// a further key is refused or takes the place of another, see [Overflow].
package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

var (
	// ErrFull says that there are MaxKeys windows already and none of them may go.
	ErrFull = errors.New("memory: too many keys")
	// ErrClosed says that the backend has been closed. It matches window.ErrClosed.
	ErrClosed = fmt.Errorf("memory: %w", window.ErrClosed)
)

// Backend is a [window.Backend] in memory. Make one with [New].
type Backend struct {
	options
	origin    time.Time // what entries' times count from
	monotonic bool      // the monotonic clock is enough
	pulse     pulse     // of that clock
	seed      maphash.Seed
	secret    string
	shards    []shard
	perMax    int   // windows per shard
	full      error // what a refused key is told
	closed    chan struct{}
	once      sync.Once
	tasks     sync.WaitGroup
}

var _ window.Backend = (*Backend)(nil)

// New returns an empty backend. It has a goroutine that [Backend.Close] ends. Virtual time, as in
// a bubble of testing/synctest, needs a backend that was made in it, or one that goes by
// WithClock(time.Now).
func New(opts ...Option) *Backend {
	b := &Backend{
		options: options{cleanPeriod: time.Minute, maxKeys: DefaultMaxKeys},
		seed:    maphash.MakeSeed(),
		secret:  rand.Text(),
		closed:  make(chan struct{}),
	}
	for _, opt := range opts {
		opt(&b.options)
	}
	b.monotonic = b.clock == nil && b.algorithm == window.PerKey
	if b.clock == nil {
		b.clock = time.Now
	}
	b.origin = b.clock()
	b.pulse.last.Store(atRest)
	if b.monotonic {
		b.pulse.enable(b.origin)
	}
	b.full = fmt.Errorf("%w: at most %d", ErrFull, b.maxKeys)
	b.shards = make([]shard, shardsFor(b.maxKeys))
	b.perMax = b.maxKeys / len(b.shards)
	for i := range b.shards {
		s := &b.shards[i]
		s.windows, s.firstEnd = newTables(), math.MaxInt64
		s.anchor = instant{time: b.origin}
		s.told = s.anchor
	}
	b.tasks.Go(b.clean)
	return b
}

// shardsFor returns how many shards share max keys: a power of two, up to 256. With few
// keys to each, the first shard would be full long before all are.
func shardsFor(max int) int {
	shards := 1
	for shards < 256 && max/(2*shards) >= 1024 {
		shards *= 2
	}
	return shards
}

// Close ends the goroutine, drops all windows, and has every later call fail with
// [ErrClosed]. It always returns nil. If a cleaning is under way, it waits for it.
func (b *Backend) Close() error {
	b.once.Do(func() { close(b.closed) })
	b.tasks.Wait()
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		s.windows, s.closed = newTables(), true
		s.mu.Unlock()
	}
	return nil
}

// Hit implements [window.Backend]. Every hit is counted. The error is that of ctx,
// [ErrFull], or [ErrClosed].
func (b *Backend) Hit(ctx context.Context, key string, scale time.Duration, _, increment uint64) (w window.Window, err error) {
	if scale <= 0 {
		return w, scaleError(scale)
	}
	// With a limit of 0, the time is not that of a moment ago.
	n, passed, left, end, err := (*counter)(b).Count(ctx, key, scale, 0, increment)
	if err != nil {
		return w, err
	}
	w.Count, w.ExpiresAt, w.Left = n, end, left
	w.StartedAt, w.UpdatedAt = end.Add(-passed-left), end.Add(-left)
	return w, nil
}

// Inc implements [window.Backend]. A count stays at the largest uint64. The error is that of
// ctx, [ErrFull], or [ErrClosed]; with each, the hit was not counted.
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	return b.Hit(ctx, key, scale, math.MaxUint64, increment)
}

// Get implements [window.Backend]. The error is that of ctx, or [ErrClosed].
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (w window.Window, err error) {
	if err := check(ctx, scale); err != nil {
		return w, err
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return w, ErrClosed
	}
	now := s.now(b)
	if r := s.find(k); r != nil {
		if e := r.entry(); e.active(now) {
			s.tell(&w, e, now)
		}
	}
	return w, nil
}

// Set implements [window.Backend]. The error is that of ctx, [ErrFull], or [ErrClosed].
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (w window.Window, err error) {
	if err := check(ctx, scale); err != nil {
		return w, err
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now(b)
	e, err := b.open(s, k, s.find(k), count, now)
	if err == nil {
		s.tell(&w, e, now)
	}
	return w, err
}

// Reset implements [window.Backend]. The error is that of ctx, or [ErrClosed].
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	_, err := b.Delete(ctx, key, scale)
	return err
}

// Delete implements [window.Backend]. Without scales it looks at every window of the
// key's shard, one of up to 256, whose key is about as long. The error is that of ctx, or [ErrClosed].
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
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

// Len returns how many windows there are, those included that are over and yet to be
// removed.
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

// open has a window of k's start now, in the record r. If that is nil, room for one is made
// first. The shard's mutex is held.
func (b *Backend) open(s *shard, k id, r record, count uint64, now int64) (entry, error) {
	if s.closed {
		return entry{}, ErrClosed
	}
	if r == nil {
		if s.windows.len() >= b.perMax && !s.makeRoom(b, now) {
			return entry{}, b.full
		}
		r = s.windows.of(k.key).insert(k)
	}
	e := entry{start: now, updated: now, count: count, scale: k.scale}
	if b.algorithm == window.Aligned {
		e.start = int64(b.algorithm.Start(s.anchor.time, k.scale).Sub(b.origin))
	}
	r.set(e)
	s.firstEnd = min(s.firstEnd, e.end())
	return e, nil
}

func check(ctx context.Context, scale time.Duration) error {
	if scale <= 0 {
		return scaleError(scale)
	}
	return ctx.Err()
}

func scaleError(scale time.Duration) error {
	return fmt.Errorf("memory: %w: it is %v", window.ErrScale, scale)
}
