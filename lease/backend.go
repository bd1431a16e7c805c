package lease

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

const (
	// DefaultAge is the default of [WithAge].
	DefaultAge = 100 * time.Millisecond
	// defaultMaxLease and defaultMaxKeys bound what a Backend holds.
	defaultMaxLease = 1 << 16
	defaultMaxKeys  = 1024
	// maxAge bounds WithAge, so that no time overflows.
	maxAge = 1 << 61
	// takeTimeout bounds a take or give-back that no caller waits for any more.
	takeTimeout = 5 * time.Second
	// closeTimeout bounds how long Close gives back.
	closeTimeout = time.Second
	// needShare: calls of more than 1/needShare of the places that may be held go to the backend.
	needShare = 4
)

// Option is an option of [New].
type Option func(*options)

type options struct {
	age      time.Duration
	maxLease int
	maxKeys  int
	match    func(key string) bool
}

// WithAge sets after which time the places of a block that were not used are given back. Default, and with 0:
// [DefaultAge]. It panics if d is negative.
func WithAge(d time.Duration) Option {
	api.NotNegative("lease: WithAge", d)
	return func(o *options) { o.age = d }
}

// WithMaxLease bounds how many places of a key and limit the process holds at a time. That is what
// is lost, until the window ends, if it dies. Default, and with 0: 65536, and never more than
// an eighth of what is left of the limit. It panics if n is negative.
func WithMaxLease(n int) Option {
	api.NotNegative("lease: WithMaxLease", n)
	return func(o *options) { o.maxLease = n }
}

// WithMaxKeys bounds how many keys have blocks at a time, each with its limit. Hits on further ones go to the
// backend. Default, and with 0: 1024. It panics if n is negative.
func WithMaxKeys(n int) Option {
	api.NotNegative("lease: WithMaxKeys", n)
	return func(o *options) { o.maxKeys = n }
}

// WithKeys restricts leases to the keys for which match returns true, for example those with a prefix.
// It must be safe for concurrent use. Default: all keys.
func WithKeys(match func(key string) bool) Option { return func(o *options) { o.match = match } }

// Backend is a [window.Backend] that takes places ahead from the one that it embeds. See the package's
// documentation. Calls that are not described here go to the embedded one, which counts the places of all blocks, of
// all processes. It is safe for concurrent use.
type Backend struct {
	window.Backend
	age      time.Duration
	maxLease uint64
	match    func(key string) bool

	epoch time.Time // of the times of blocks
	stop  func()    // between a place and the clock, for tests; or nil
	table *table
	heat  heat

	taken, takes, returned, lost atomic.Uint64

	ctx     context.Context // of takes and give-backs
	cancel  context.CancelFunc
	closing sync.Once
	mu      sync.Mutex     // guards ended, and additions to work
	ended   bool           // no goroutine is started any more
	work    sync.WaitGroup // all goroutines
}

var _ window.BackendCloser = (*Backend)(nil)

// New returns a backend that takes places from b ahead of hits, and gives back what it has not used. Close
// it after use, and before b. New panics if b or an option is nil.
func New(b window.Backend, opts ...Option) *Backend {
	if b == nil {
		panic("lease: New: backend is nil")
	}
	var o options
	api.Apply("lease: New", &o, opts)
	l := &Backend{
		Backend: b, age: min(cmp.Or(o.age, DefaultAge), maxAge),
		maxLease: uint64(cmp.Or(o.maxLease, defaultMaxLease)), match: o.match,
		epoch: time.Now(), table: newTable(cmp.Or(o.maxKeys, defaultMaxKeys)), heat: heat{seed: maphash.MakeSeed()},
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// now returns the time of the monotonic clock.
func (b *Backend) now() time.Duration {
	return time.Since(b.epoch)
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

// passesOn reports whether the calls of a limit are passed on to the backend: there are no blocks for it.
func passesOn(l *window.Limit) bool { return l.Algorithm.Rolling() || l.Calendar != 0 }

// Hit implements [window.Backend]. A hit gets a place of a block, or is Refused: then it counts nothing.
// Count is the hit's place, and not the count of the backend, which has the places of all blocks. If the
// hit is refused, it is the last known count.
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if n == 0 || passesOn(&l) { // a hit of 0 opens a window, unlike a take
		return b.Backend.Hit(ctx, key, l, n)
	}
	w, err := b.Take(ctx, key, l, n)
	if !w.Refused {
		w.Count = min(w.Count, l.Max) // a hit that is counted beyond Max is denied; this one is not
	}
	return w, err
}

// Take implements [window.Backend]. Like a hit, a take gets places of a block.
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	w, _, err := b.take(ctx, key, l, n)
	return w, err
}

// take takes n places of a block, or of the backend if no block can decide, and reports whether the backend was asked.
func (b *Backend) take(ctx context.Context, key string, l window.Limit,
	n uint64) (w window.Window, asked bool, err error) {
	if err := ctx.Err(); err != nil {
		return w, false, err
	}
	if e := b.entry(key, &l, n); e != nil {
		if w, v, err := e.spend(ctx, n); v == byBlock || err != nil {
			return w, false, err
		}
	}
	w, err = b.Backend.Take(ctx, key, l, n)
	return w, true, err
}

// Held is for a RateLimit, which has calls decided by the places that are held before it looks whether the store is
// away.
func (b *Backend) Held() outage.Held { return outage.Held{Of: b, Take: b.takeHeld} }

// Part returns the server, or the node of a cluster, that keeps a key, if the backend that places are taken from has
// several.
func (b *Backend) Part(key string) string { return outage.PartOf(b.Backend, key) }

// takeHeld makes a hit or a take of a block that there is, or returns false.
func (b *Backend) takeHeld(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, ok bool) {
	if ctx.Err() != nil || !b.ahead(&l, n) {
		return w, false
	}
	e := b.table.find(key, &l)
	if e == nil {
		return w, false
	}
	w, v, _ := e.try(n)
	return w, v == byBlock
}

// ahead reports whether a call of n may get places of a block.
func (b *Backend) ahead(l *window.Limit, n uint64) bool {
	return n > 0 && n <= min(l.Max, max(b.maxLease/needShare, 1)) && !passesOn(l)
}

// entry returns the entry of a key and limit for a call of n. It returns nil if there are no blocks for it.
func (b *Backend) entry(key string, l *window.Limit, n uint64) *entry {
	if !b.ahead(l, n) {
		return nil
	}
	if e := b.table.find(key, l); e != nil {
		return e
	}
	if b.match != nil && !b.match(key) || !b.heat.hit(key, b.now(), b.age) {
		return nil
	}
	traits, err := b.Backend.Check(*l)
	if err != nil || l.Scale/4 < traits.Precision { // a block dies by Precision before its window ends
		return nil
	}
	return b.table.add(newEntry(b, strings.Clone(key), *l, traits.Precision))
}

// tendPause returns the pause between two calls of an entry's tend.
func (b *Backend) tendPause() time.Duration { return max(b.age/4, time.Millisecond) }

// failure returns the error of a take whose ctx was made of b.ctx. No caller has ended that: Close has, or takeTimeout.
func (b *Backend) failure(ctx context.Context, err error) error {
	switch {
	case b.ctx.Err() != nil:
		return window.ErrClosed
	case outage.Ended(ctx):
		return &outage.TimeoutError{After: takeTimeout, Err: err}
	}
	return err
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
		if given, err := b.Backend.GiveBack(ctx, e.key, e.limit, n, old.id); given && err == nil {
			b.returned.Add(n)
			return
		}
	}
	b.lost.Add(n)
}

// Set implements [window.Backend]. No hit of this Backend after Set uses a block that was taken before.
// Other Backends may use theirs until they are older than their age.
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	err = b.replacing(ctx, key, func(e *entry) bool { return e.counts(&l) }, func() (err error) {
		w, err = b.Backend.Set(ctx, key, l, n)
		return err
	})
	return w, err
}

// Reset implements [window.Backend]. Blocks are dropped as by Set.
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	return b.replacing(ctx, key, func(e *entry) bool { return e.counts(&l) },
		func() error { return b.Backend.Reset(ctx, key, l) })
}

// Delete implements [window.Backend]. Blocks are dropped as by Set.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	ended := func(e *entry) bool { return len(scales) == 0 || slices.Contains(scales, e.limit.Scale) }
	err = b.replacing(ctx, key, ended, func() (err error) {
		n, err = b.Backend.Delete(ctx, key, scales...)
		return err
	})
	return n, err
}

// replacing drops the blocks of the windows of a key that a call ends, and those that were taken during the call.
func (b *Backend) replacing(ctx context.Context, key string, ended func(*entry) bool, call func() error) error {
	drop := func() {
		for _, e := range b.table.ofKey(key) {
			if ended(e) {
				e.drop(false)
			}
		}
	}
	drop()
	defer drop()
	return call()
}

// Ping asks the backend that places are taken from, if it has a Ping.
func (b *Backend) Ping(ctx context.Context) error {
	if inner, ok := b.Backend.(window.BackendCloser); ok {
		return inner.Ping(ctx)
	}
	return nil
}

// Stats returns that of the backend that places are taken from, if it has any. See also [Backend.Blocks].
func (b *Backend) Stats() window.Stats {
	if inner, ok := b.Backend.(window.BackendCloser); ok {
		return inner.Stats()
	}
	return window.Stats{}
}

// BlockStats is what a [Backend] has taken ahead. Places of all keys are added up.
type BlockStats struct {
	Keys     int    // that are hot, each with its limit
	Held     uint64 // places that can be spent
	Spent    uint64 // places that hits got
	Returned uint64 // places that were given back
	Lost     uint64 // places that were neither spent nor given back in time: they stay counted until their windows end
	Takes    uint64 // takes of blocks
}

// Blocks returns what the Backend has taken ahead.
func (b *Backend) Blocks() BlockStats {
	entries := b.table.all()
	s := BlockStats{Keys: len(entries)}
	for _, e := range entries {
		s.Held += e.held()
	}
	s.Returned = b.returned.Load()
	s.Lost = b.lost.Load()
	s.Takes = b.takes.Load()
	if taken, rest := b.taken.Load(), s.Held+s.Returned+s.Lost; taken > rest {
		s.Spent = taken - rest
	}
	return s
}

// Close gives back all blocks, which takes 1 s at most. Calls that still wait for a block then fail with
// [window.ErrClosed], and later ones go to the backend that the Backend takes from, which Close does not close. It
// always returns nil, and can be called more than once: each call returns when all is given back.
func (b *Backend) Close() error {
	b.closing.Do(b.close)
	return nil
}

func (b *Backend) close() {
	for _, e := range b.table.close() {
		b.table.remove(e)
		e.drop(true)
	}
	defer time.AfterFunc(closeTimeout, b.cancel).Stop()
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.work.Wait()
	b.cancel()
}
