// Package memory keeps rate-limit windows in the program's own memory: exact under any
// concurrency, with no server and no allocation per hit. It is for one process; several
// that share a limit need a server.
//
//	limiter := throttr.NewRateLimit(memory.New())
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// Its size is bounded. Windows that are over are removed every CleanPeriod, and at MaxKeys
// windows a further key is refused or takes the place of another, see [Overflow].
package memory

import (
	"context"
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
	// ErrClosed says that the backend has been closed.
	ErrClosed = errors.New("memory: backend is closed")
)

// Backend is a [window.Backend] in memory. Make one with [New].
type Backend struct {
	options
	start  time.Time // for a clock that does not jump
	seed   maphash.Seed
	shards []shard
	perMax int // windows per shard
	closed chan struct{}
	once   sync.Once
	tasks  sync.WaitGroup
}

var _ window.Backend = (*Backend)(nil)

// New returns an empty backend. It has a goroutine that [Backend.Close] ends.
func New(opts ...Option) *Backend {
	b := &Backend{
		options: options{cleanPeriod: time.Minute, maxKeys: DefaultMaxKeys},
		start:   time.Now(),
		seed:    maphash.MakeSeed(),
		closed:  make(chan struct{}),
	}
	for _, opt := range opts {
		opt(&b.options)
	}
	b.shards = make([]shard, shardsFor(b.maxKeys))
	b.perMax = max(1, b.maxKeys/len(b.shards))
	for i := range b.shards {
		b.shards[i].windows = make(map[id]entry)
	}
	b.tasks.Go(b.clean)
	return b
}

// shardsFor returns how many shards share max keys. With few keys, a shard each of many
// would be full long before all are.
func shardsFor(max int) int {
	shards := 1
	for shards < 256 && max/(2*shards) >= 256 {
		shards *= 2
	}
	return shards
}

// Close ends the goroutine, drops all windows, and has every later call fail with
// [ErrClosed]. It always returns nil.
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
// ctx, [ErrFull], or [ErrClosed].
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	if err := check(ctx, scale); err != nil {
		return window.Window{}, err
	}
	k := id{key, scale}
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := b.nanos()
	e, ok := s.windows[k]
	if !ok || !e.active(now, scale) {
		return b.open(s, k, increment, now, !ok)
	}
	if e.count += increment; e.count < increment {
		e.count = math.MaxUint64
	}
	e.updated = now
	s.windows[k] = e
	return e.window(now, scale), nil
}

// Get implements [window.Backend]. The error is that of ctx, or [ErrClosed].
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	if err := check(ctx, scale); err != nil {
		return window.Window{}, err
	}
	k := id{key, scale}
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return window.Window{}, ErrClosed
	}
	now := b.nanos()
	if e, ok := s.windows[k]; ok && e.active(now, scale) {
		return e.window(now, scale), nil
	}
	return window.Window{}, nil
}

// Set implements [window.Backend]. The error is that of ctx, [ErrFull], or [ErrClosed].
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (window.Window, error) {
	if err := check(ctx, scale); err != nil {
		return window.Window{}, err
	}
	k := id{key, scale}
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.windows[k]
	return b.open(s, k, count, b.nanos(), !ok)
}

// Reset implements [window.Backend]. The error is that of ctx, or [ErrClosed].
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	_, err := b.Delete(ctx, key, scale)
	return err
}

// Delete implements [window.Backend]. Without scales it looks at every window of the
// key's shard, one of up to 256. The error is that of ctx, or [ErrClosed].
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	n := 0
	for _, scale := range scales {
		if err := check(ctx, scale); err != nil {
			return n, err
		}
		k := id{key, scale}
		ok, err := b.shard(k).remove(k, b.nanos())
		if err != nil {
			return n, err
		}
		if ok {
			n++
		}
	}
	if len(scales) > 0 {
		return n, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return b.shard(id{key: key}).removeKey(key, b.nanos())
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

// open puts a new window in the place of k's. If k has none, room is made first. The
// shard's mutex is held.
func (b *Backend) open(s *shard, k id, count uint64, now int64, further bool) (window.Window, error) {
	if s.closed {
		return window.Window{}, ErrClosed
	}
	if further && len(s.windows) >= b.perMax && !s.makeRoom(now, b.overflow) {
		return window.Window{}, fmt.Errorf("%w: at most %d", ErrFull, b.maxKeys)
	}
	e := entry{start: now, updated: now, count: count}
	if b.algorithm == window.Aligned {
		e.start = b.algorithm.Start(time.Unix(0, now), k.scale).UnixNano()
	}
	s.windows[k] = e
	return e.window(now, k.scale), nil
}

// nanos returns the time in nanoseconds since 1970. Unless there is a clock, it is one that
// does not jump with the system's; but aligned windows follow the system's.
func (b *Backend) nanos() int64 {
	switch {
	case b.now != nil:
		return b.now().UnixNano()
	case b.algorithm == window.Aligned:
		return time.Now().UnixNano()
	default:
		return b.start.UnixNano() + int64(time.Since(b.start))
	}
}

func check(ctx context.Context, scale time.Duration) error {
	if scale <= 0 {
		return fmt.Errorf("memory: scale must be positive: it is %v", scale)
	}
	return ctx.Err()
}
