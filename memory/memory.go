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
	"strings"
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
	origin time.Time // what entries' times count from
	seed   maphash.Seed
	secret string
	shards []shard
	perMax int   // windows per shard
	full   error // what a refused key is told
	closed chan struct{}
	once   sync.Once
	tasks  sync.WaitGroup
}

var _ window.Backend = (*Backend)(nil)

// New returns an empty backend. It has a goroutine that [Backend.Close] ends.
func New(opts ...Option) *Backend {
	b := &Backend{
		options: options{now: time.Now, cleanPeriod: time.Minute, maxKeys: DefaultMaxKeys},
		seed:    maphash.MakeSeed(),
		secret:  rand.Text(),
		closed:  make(chan struct{}),
	}
	for _, opt := range opts {
		opt(&b.options)
	}
	b.origin = b.now()
	b.full = fmt.Errorf("%w: at most %d", ErrFull, b.maxKeys)
	b.shards = make([]shard, shardsFor(b.maxKeys))
	b.perMax = b.maxKeys / len(b.shards)
	for i := range b.shards {
		b.shards[i].windows = make(map[id]*entry)
		b.shards[i].firstEnd = math.MaxInt64
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
		s.windows, s.closed = nil, true
		s.mu.Unlock()
	}
	return nil
}

// Hit implements [window.Backend]. Every hit is counted. The error is that of ctx,
// [ErrFull], or [ErrClosed].
func (b *Backend) Hit(ctx context.Context, key string, scale time.Duration, _, increment uint64) (window.Window, error) {
	return b.Inc(ctx, key, scale, increment)
}

// Inc implements [window.Backend]. A count stays at the largest uint64. The error is that of
// ctx, [ErrFull], or [ErrClosed]; with each, the hit was not counted.
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	if err := check(ctx, scale); err != nil {
		return window.Window{}, err
	}
	k := b.id(key, scale)
	s := b.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.instant()
	e := s.windows[k]
	if e == nil || !e.active(now.nanos, scale) {
		return b.open(s, k, e, increment, now)
	}
	e.add(increment, now.nanos)
	return e.window(now, scale), nil
}

// Get implements [window.Backend]. The error is that of ctx, or [ErrClosed].
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	if err := check(ctx, scale); err != nil {
		return window.Window{}, err
	}
	k := b.id(key, scale)
	s := b.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return window.Window{}, ErrClosed
	}
	now := b.instant()
	if e := s.windows[k]; e != nil && e.active(now.nanos, scale) {
		return e.window(now, scale), nil
	}
	return window.Window{}, nil
}

// Set implements [window.Backend]. The error is that of ctx, [ErrFull], or [ErrClosed].
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (window.Window, error) {
	if err := check(ctx, scale); err != nil {
		return window.Window{}, err
	}
	k := b.id(key, scale)
	s := b.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.open(s, k, s.windows[k], count, b.instant())
}

// Reset implements [window.Backend]. The error is that of ctx, or [ErrClosed].
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	_, err := b.Delete(ctx, key, scale)
	return err
}

// Delete implements [window.Backend]. Without scales it looks at every window of the
// key's shard, one of up to 256. The error is that of ctx, or [ErrClosed].
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	if len(scales) == 0 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		k := b.id(key, 0)
		return b.shard(k.key).removeKey(b, k.key)
	}
	n := 0
	for _, scale := range scales {
		if err := check(ctx, scale); err != nil {
			return n, err
		}
		k := b.id(key, scale)
		ok, err := b.shard(k.key).remove(b, k)
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
		n += len(s.windows)
		s.mu.Unlock()
	}
	return n
}

// open has a window of k's start now, in the place of e. If there is none, room is made
// first. The shard's mutex is held.
func (b *Backend) open(s *shard, k id, e *entry, count uint64, now instant) (window.Window, error) {
	if s.closed {
		return window.Window{}, ErrClosed
	}
	if e == nil {
		if len(s.windows) >= b.perMax && !s.makeRoom(now.nanos, b.overflow) {
			return window.Window{}, b.full
		}
		e = new(entry)
		k.key = strings.Clone(k.key) // the caller's may be a small part of something large
		s.windows[k] = e
	}
	start := b.algorithm.Start(now.time, k.scale)
	*e = entry{start: int64(start.Sub(b.origin)), updated: now.nanos, count: count}
	s.firstEnd = min(s.firstEnd, e.end(k.scale))
	return e.window(now, k.scale), nil
}

// instant is a time, and what it is in nanoseconds since the backend's origin.
type instant struct {
	time  time.Time
	nanos int64
}

// instant returns the time. Aligned windows follow the wall clock. Others do not notice
// when that is set, as long as the times have a monotonic reading.
func (b *Backend) instant() instant {
	t := b.now()
	if b.algorithm == window.Aligned {
		t = t.Round(0)
	}
	return instant{t, int64(t.Sub(b.origin))}
}

func check(ctx context.Context, scale time.Duration) error {
	if scale <= 0 {
		return fmt.Errorf("memory: %w: it is %v", window.ErrScale, scale)
	}
	return ctx.Err()
}
