package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	// DefaultAge is the age of blocks if none is given.
	DefaultAge = 100 * time.Millisecond
	// defaultMaxLease and defaultMaxKeys bound what a Backend holds.
	defaultMaxLease = 1 << 16
	defaultMaxKeys  = 1024
	// defaultPrecision is that of backends that do not tell theirs.
	defaultPrecision = time.Millisecond
	// takeTimeout bounds a take or give-back that no caller waits for any more.
	takeTimeout = 5 * time.Second
	// closeTimeout bounds how long Close gives back.
	closeTimeout = time.Second
	// needShare is the part of the most places of a block that one hit may need to get them from
	// one.
	needShare = 4
)

// Store is a backend that places can be taken from and given back to.
type Store interface {
	window.Backend
	window.Taker
}

// Option is an option of [New].
type Option func(*Backend)

// WithMaxLease bounds how many places of a key, scale and limit the process holds at a time. That is what
// is lost, until the window ends, if it dies. Default, and with n below 1: 65536, and never more than
// an eighth of what is left of the limit.
func WithMaxLease(n int) Option { return func(b *Backend) { b.maxLease = uint64(max(n, 0)) } }

// WithMaxKeys bounds how many keys have blocks at a time, each with its scale and limit. Hits on further
// ones go to the backend. Default, and with n below 1: 1024.
func WithMaxKeys(n int) Option { return func(b *Backend) { b.maxKeys = n } }

// WithKeys restricts leases to the keys for which match returns true, for example those with a prefix.
// It must be safe for concurrent use. Default: all keys.
func WithKeys(match func(key string) bool) Option { return func(b *Backend) { b.match = match } }

// Backend is a [window.Backend] that takes places ahead. See the package's documentation. It is safe
// for concurrent use.
type Backend struct {
	inner    Store
	checker  window.Checker // inner, if it is one; or nil
	precise  precise        // the same
	age      time.Duration
	maxLease uint64
	maxNeed  uint64 // of one hit, to get it from a block
	maxKeys  int
	match    func(key string) bool

	epoch time.Time // of the times of blocks
	stop  func()    // between a place and the clock, for tests; or nil
	table *table

	taken, takes, returned, lost atomic.Uint64

	ctx     context.Context // of takes and give-backs
	cancel  context.CancelFunc
	closing atomic.Bool
	closed  chan struct{} // closed when Close begins
	mu      sync.Mutex    // guards ended, and work while ended is false
	ended   bool          // no goroutine is started any more
	work    sync.WaitGroup
}

// precise is a backend that tells by how much the ends of its windows may be too late.
type precise interface {
	Precision(scale time.Duration) time.Duration
}

var (
	_ Store          = (*Backend)(nil)
	_ window.Checker = (*Backend)(nil)
)

// New returns a backend that takes places from b ahead of hits, and gives back what it has not used
// after age. If age is 0, it is [DefaultAge].
//
// B keeps fixed windows, per key or aligned: a rolling algorithm would allow too much if what is taken is
// used later. If b has a method Precision(scale time.Duration) time.Duration, it
// returns how much later than the end of a window its ExpiresAt may be; otherwise that is at most 1 ms.
//
// New panics if b is nil or keeps rolling windows, or if age is negative. Close the Backend after use, and before b.
func New(b Store, age time.Duration, opts ...Option) *Backend {
	if b == nil || age < 0 || window.AlgorithmOf(b).Rolling() {
		panic(fmt.Sprintf("throttr: lease.New with backend %v and age %v", b, age))
	}
	l := &Backend{inner: b, age: age, epoch: time.Now(), closed: make(chan struct{})}
	for _, opt := range opts {
		opt(l)
	}
	if l.age == 0 {
		l.age = DefaultAge
	}
	if l.maxLease < 1 {
		l.maxLease = defaultMaxLease
	}
	l.maxLease = min(l.maxLease, retired/2)
	l.maxNeed = max(l.maxLease/needShare, 1)
	if l.maxKeys < 1 {
		l.maxKeys = defaultMaxKeys
	}
	l.checker, _ = b.(window.Checker)
	l.precise, _ = b.(precise)
	l.table = newTable(l.maxKeys)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// now returns the time of the monotonic clock.
func (b *Backend) now() time.Duration {
	return time.Since(b.epoch)
}

// Precision returns how much later than the end of a window of the scale its ExpiresAt may be: that of the
// backend which it takes from.
func (b *Backend) Precision(scale time.Duration) time.Duration { return b.precision(scale) }

func (b *Backend) precision(scale time.Duration) time.Duration {
	if b.precise == nil {
		return defaultPrecision
	}
	return b.precise.Precision(scale)
}

// run runs f in a goroutine that Close waits for. It returns false if the backend is closed.
func (b *Backend) run(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.work.Go(f)
	}
	return !b.ended
}

// check returns the error of a call that must not do anything.
func (b *Backend) check(ctx context.Context) error {
	if b.closing.Load() {
		return window.ErrClosed
	}
	return ctx.Err()
}

// Hit implements [window.Backend]. A hit gets a place of a block, or is Refused: then it counts nothing.
// Count is the hit's place, and not the count of the backend, which has the places of all blocks. If the
// hit is refused, it is the last known count.
func (b *Backend) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (window.Window, error) {
	var a answer
	err := b.hit(ctx, key, scale, limit, increment, &a)
	return a.window(), err
}

// HitCount is Hit for callers that need only the count, the time that is left of the window, and its end.
// A RateLimit calls it, as a [window.Window] takes long to copy.
func (b *Backend) HitCount(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (
	count uint64, left time.Duration, end time.Time, granted bool, err error,
) {
	var a answer
	err = b.hit(ctx, key, scale, limit, increment, &a)
	return a.count, a.left, a.expires, !a.refused, err
}

// hit sets a to the answer to a hit.
func (b *Backend) hit(ctx context.Context, key string, scale time.Duration, limit, n uint64, a *answer) error {
	v, err := b.spend(ctx, key, scale, limit, n, a)
	if v == granted || err != nil {
		return err
	}
	if v == pass {
		var w window.Window
		ok := true
		if n == 0 { // opens a window, unlike a take
			w, err = b.inner.Hit(ctx, key, scale, limit, 0)
			ok = !w.Refused && w.Count <= limit
		} else {
			w, ok, err = b.inner.Take(ctx, key, scale, limit, n)
		}
		if *a = answerOf(w); ok || err != nil {
			return err
		}
	}
	if a.left <= 0 { // there is no window
		a.left, a.expires = scale, time.Now().Add(scale)
	}
	a.refused = true
	return nil
}

// Take implements [window.Taker]. Like a hit, a take gets places of a block.
func (b *Backend) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, bool, error) {
	var a answer
	v, err := b.spend(ctx, key, scale, limit, n, &a)
	if v == pass && err == nil {
		return b.inner.Take(ctx, key, scale, limit, n)
	}
	a.refused = false // for hits only
	return a.window(), v == granted, err
}

// spend takes n places of blocks, and sets a. The verdict is pass if the key is not hot.
func (b *Backend) spend(ctx context.Context, key string, scale time.Duration, limit, n uint64, a *answer) (verdict, error) {
	if err := b.check(ctx); err != nil {
		return refused, err
	}
	if n == 0 || n > limit || n > b.maxNeed {
		return pass, nil
	}
	if e := b.entry(key, scale, limit); e != nil {
		return e.spend(ctx, n, a)
	}
	return pass, nil
}

// entry returns the entry of a key. It returns nil if the key is not hot.
func (b *Backend) entry(key string, scale time.Duration, limit uint64) *entry {
	if e := b.table.lookUp(key, scale, limit); e != nil {
		return e
	}
	hash := b.table.hash(key, scale, limit)
	if e := b.table.find(hash, key, scale, limit); e != nil || !b.table.heat(hash, b.now, b.age) {
		return e
	}
	if b.match != nil && !b.match(key) || scale < 4*b.precision(scale) {
		return nil
	}
	e := newEntry(b, hash, strings.Clone(key), scale, limit)
	added, first := b.table.add(e)
	if first {
		b.run(b.tend)
	}
	if !added {
		return nil
	}
	return e
}

// tend gives back what is idle or too old, as long as there are entries.
func (b *Backend) tend() {
	pause := max(b.age/4, time.Millisecond)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-b.closed:
			return
		}
		for _, e := range b.table.all(func(*entry) bool { return true }) {
			if e.tend() {
				continue
			}
			empty := b.table.remove(e) == 0
			b.discardAll(e, e.drop(true))
			if empty {
				return
			}
		}
		timer.Reset(pause)
	}
}

// discardAll retires blocks and gives back what is left of them.
func (b *Backend) discardAll(e *entry, blocks []*block) {
	for _, old := range blocks {
		if left := old.retire(); left > 0 {
			b.giveBack(e, old, left)
		}
	}
}

// giveBack gives back n places of a block that nobody uses.
func (b *Backend) giveBack(e *entry, old *block, n uint64) {
	if !b.run(func() { b.returnPlaces(e, old, n) }) {
		b.lost.Add(n)
	}
}

// returnPlaces gives n places of a block back, once, whatever the outcome is. Its window may be open for
// longer than the block is used.
func (b *Backend) returnPlaces(e *entry, old *block, n uint64) {
	if n == 0 {
		return
	}
	if b.now() < old.over {
		ctx, cancel := context.WithTimeout(b.ctx, takeTimeout)
		defer cancel()
		if given, err := b.inner.GiveBack(ctx, e.key, e.scale, old.id, n); given && err == nil {
			b.returned.Add(n)
			return
		}
	}
	b.lost.Add(n)
}

// TakeAll implements [window.Taker]. It goes to the backend.
func (b *Backend) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (bool, error) {
	if len(limits) == 0 {
		return true, nil
	}
	if err := b.check(ctx); err != nil {
		return false, err
	}
	return b.inner.TakeAll(ctx, limits, windows)
}

// GiveBack implements [window.Taker]. It goes to the backend, also for places of a block.
func (b *Backend) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error) {
	if err := b.check(ctx); err != nil {
		return false, err
	}
	return b.inner.GiveBack(ctx, key, scale, id, n)
}

// Inc implements [window.Backend]. It goes to the backend.
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	if err := b.check(ctx); err != nil {
		return window.Window{}, err
	}
	return b.inner.Inc(ctx, key, scale, increment)
}

// Get implements [window.Backend]. The count is that of the backend, which has the places of all blocks,
// of all processes.
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	if err := b.check(ctx); err != nil {
		return window.Window{}, err
	}
	return b.inner.Get(ctx, key, scale)
}

// Set implements [window.Backend]. No hit of this Backend after Set uses a block that was taken before.
// Other Backends may use theirs until they are older than their age.
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (w window.Window, err error) {
	err = b.replacing(ctx, key, []time.Duration{scale}, func() (err error) {
		w, err = b.inner.Set(ctx, key, scale, count)
		return err
	})
	return w, err
}

// Reset implements [window.Backend]. Blocks are dropped as by Set.
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	return b.replacing(ctx, key, []time.Duration{scale}, func() error { return b.inner.Reset(ctx, key, scale) })
}

// Delete implements [window.Backend]. Blocks are dropped as by Set.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	err = b.replacing(ctx, key, scales, func() (err error) {
		n, err = b.inner.Delete(ctx, key, scales...)
		return err
	})
	return n, err
}

// replacing drops the blocks of a key before a call that ends its windows, and those that were taken
// during the call. Without scales, it drops those of all scales.
func (b *Backend) replacing(ctx context.Context, key string, scales []time.Duration, call func() error) error {
	if err := b.check(ctx); err != nil {
		return err
	}
	drop := func() {
		for _, e := range b.table.all(func(e *entry) bool { return e.key == key && (len(scales) == 0 || slices.Contains(scales, e.scale)) }) {
			b.discardAll(e, e.drop(false))
		}
	}
	drop()
	defer drop()
	return call()
}

// Check implements [window.Checker]. It is that of the backend, if it is one.
func (b *Backend) Check(scale time.Duration, limit uint64) error {
	if b.checker != nil {
		return b.checker.Check(scale, limit)
	}
	return window.CheckScale(scale)
}

// Algorithm returns that of the backend.
func (b *Backend) Algorithm() window.Algorithm { return window.AlgorithmOf(b.inner) }

// Stats is what a [Backend] has taken ahead. Places of all keys are added up.
type Stats struct {
	Keys     int    // that are hot, each with its scale and limit
	Held     uint64 // places that can be spent
	Spent    uint64 // places that hits got
	Returned uint64 // places that were given back
	Lost     uint64 // places that were neither spent nor given back in time: they stay counted until their windows end
	Takes    uint64 // takes of blocks
}

// Stats returns what the Backend has taken ahead.
func (b *Backend) Stats() Stats {
	entries := b.table.all(func(*entry) bool { return true })
	s := Stats{Keys: len(entries)}
	for _, e := range entries {
		s.Held += e.held()
	}
	s.Returned, s.Lost, s.Takes = b.returned.Load(), b.lost.Load(), b.takes.Load()
	if taken, rest := b.taken.Load(), s.Held+s.Returned+s.Lost; taken > rest {
		s.Spent = taken - rest
	}
	return s
}

// Close gives back all blocks, which takes 1 s at most, and makes further calls fail with
// [window.ErrClosed]. It does not close the backend that the Backend takes from. It always returns nil,
// and can be called more than once.
func (b *Backend) Close() error {
	if b.closing.CompareAndSwap(false, true) {
		close(b.closed)
		b.table.close()
		for _, e := range b.table.all(func(*entry) bool { return true }) {
			b.table.remove(e)
			b.discardAll(e, e.drop(true))
		}
		defer time.AfterFunc(closeTimeout, b.cancel).Stop()
	}
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.work.Wait()
	b.cancel()
	return nil
}
