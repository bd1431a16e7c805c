package throttr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/internal/waiting"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// RateLimit decides whether something may be done now, by limits whose counts a [Backend] keeps.
//
// [RateLimit.Hit] counts hits in fixed windows, and denied hits count, too. [RateLimit.Take] counts only
// what it grants, with any algorithm. (Rolling algorithms can't count what they deny: there, a hit is a
// take.) [RateLimit.TakeAll] takes of several limits or of none, [RateLimit.Reserve] takes an estimate
// whose rest can be given back, [RateLimit.Wait] and [RateLimit.WaitAll] wait for their turn, and
// [RateLimit.Charge] counts whatever the limit says.
//
// A denial is a [Result], not an error. An error means that there is no decision, unless a [Policy] or a
// fallback makes one:
//   - [ErrScale], [ErrRange] and [ErrUnsupported] are mistakes in the program: see [RateLimit.Check]
//   - [ErrClosed] is its end, and the error of the ctx is the caller's own
//   - all others are failures of the backend; [ErrUnavailable] says that the store is away
//
// A call that returned an error may have been counted.
//
// The methods with a scale in place of a Limit (Hit, Inc, Get, Set, ExpiresAt, Reset) are for the limit
// of that scale without a name, with the default algorithm. If that is a rolling one, Inc, Get, Set and
// ExpiresAt return ErrUnsupported: without a Max there is no rate.
//
// A RateLimit is safe for concurrent use.
type RateLimit struct {
	options
	store  Backend         // the backend, with a guard: see guarded. That of package memory has none.
	queues *waiting.Queues // of callers of Wait
	watch  *outage.Watch
}

// options are what an Option sets.
type options struct {
	algorithm  Algorithm // of limits without one
	policy     Policy
	fallback   Backend // decides instead of the backend; nil: none. That of a RateLimit has a guard, too.
	processes  uint64  // that share the limits
	outages    outage.Settings
	observer   Observer
	maxWaiters int // of a queue
}

// Option is an option of [NewRateLimit].
type Option func(*options)

// NewRateLimit returns a RateLimit that keeps its counts in backend, such as that of [Open] or of package
// memory. It panics if backend or an option is nil.
func NewRateLimit(backend Backend, opts ...Option) *RateLimit {
	if backend == nil {
		panic("throttr: NewRateLimit: backend is nil")
	}
	r := &RateLimit{options: options{algorithm: FixedWindow, processes: 1}}
	api.Apply("throttr: NewRateLimit", &r.options, opts)
	r.maxWaiters = cmp.Or(r.maxWaiters, defaultMaxWaiters)
	r.queues = waiting.New(r.maxWaiters)
	r.watch = newWatch(backend, &r.options)
	r.store = r.guarded(backend, r.watch)
	if r.fallback != nil {
		r.fallback = r.guarded(r.fallback, unwatched)
	}
	return r
}

// guarded returns a backend with what protects callers while its store is away, of which w is told. The memory of the
// process is never away, and waits for nothing: it has no guard. What a backend of package lease decides without its
// store goes past the guard, see outage.Holder. A wrapper of either is a backend like any other.
func (o *options) guarded(b Backend, w *outage.Watch) Backend {
	if opened, ok := b.(*OpenBackend); ok {
		b = opened.BackendCloser
	}
	if m, ok := b.(*memory.Backend); ok {
		return m
	}
	return outage.New(b, outage.Options{Settings: o.outages, Watch: w, NotMade: errNotMade, FailedPart: failedPart})
}

// WithAlgorithm sets the algorithm of limits that have none, and of Hit and the other methods that have a
// scale in place of a Limit. Default: [FixedWindow]. It panics if a is unknown, or [CalendarWindow].
func WithAlgorithm(a Algorithm) Option {
	if a != 0 && !slices.Contains(limits.Algorithms, a) {
		panic("throttr: WithAlgorithm: " + a.String() + " is no algorithm for limits with a Scale")
	}
	return func(o *options) {
		o.algorithm = cmp.Or(a, FixedWindow)
	}
}

// Inc counts n in key's window of the given scale, whatever a limit says, and returns the count. It waits for the
// backend as long as a decision does, see [WithTimeout], but no policy or fallback applies. An n of 0 is [ErrRange]:
// see [RateLimit.Get].
func (r *RateLimit) Inc(ctx context.Context, key string, scale time.Duration, n uint64) (uint64, error) {
	l, err := r.positional("inc", charge, key, scale, n)
	if err != nil {
		return 0, err
	}
	w, err := r.store.Charge(ctx, key, l, n)
	return w.Count, err
}

// Get returns the count of key's window of the given scale, 0 if there is none.
func (r *RateLimit) Get(ctx context.Context, key string, scale time.Duration) (uint64, error) {
	w, err := r.window(ctx, "get", key, scale)
	return w.Count, err
}

// ExpiresAt returns when key's window of the given scale ends, the zero time if there is none.
func (r *RateLimit) ExpiresAt(ctx context.Context, key string, scale time.Duration) (time.Time, error) {
	w, err := r.window(ctx, "expires at", key, scale)
	return w.ExpiresAt, err
}

// window returns key's window of a scale. Call is the name of the call in errors.
func (r *RateLimit) window(ctx context.Context, call, key string, scale time.Duration) (window.Window, error) {
	l, err := r.positional(call, peek, key, scale, 0)
	if err != nil {
		return window.Window{}, err
	}
	return r.store.Peek(ctx, key, l, 0)
}

// Set opens a window with the given count in place of the active one, in the fallback, too. A fixed window
// ends one scale from now. Set returns the count. It takes 5 s at most for each backend, or as long as a decision if
// that is longer, and so do Reset, Forget (for each limit) and Delete: they ask also a store that is known to be away.
// Their error is that of both backends.
func (r *RateLimit) Set(ctx context.Context, key string, scale time.Duration, count uint64) (uint64, error) {
	l, err := r.positional("set", peek, key, scale, count)
	if err != nil {
		return 0, err
	}
	w, err := change(r, l, func(b Backend, l Limit) (window.Window, error) { return b.Set(ctx, key, l, count) })
	r.queues.Refresh(countOf(key, &l))
	return w.Count, err
}

// positional returns the limit of a call that has a scale in its place, and does what a verb does. It has no Max: what
// a backend lists keeps the one before.
func (r *RateLimit) positional(call string, v verb, key string, scale time.Duration, n uint64) (Limit, error) {
	l := Limit{Scale: scale, Algorithm: r.algorithm}
	err := limits.CheckScale(scale)
	if err == nil && l.Algorithm.Rolling() {
		err = fmt.Errorf("%w: %v has no count without a Max", ErrUnsupported, l.Algorithm)
	}
	if err == nil {
		err = v.check(&l, n)
	}
	if err != nil {
		return l, callError(call, key, err)
	}
	return l, nil
}

// Reset ends key's window of the given scale, in the fallback, too. The next hit opens another one.
func (r *RateLimit) Reset(ctx context.Context, key string, scale time.Duration) error {
	return r.reset(ctx, "reset", key, Limit{Max: 1, Scale: scale, Algorithm: r.algorithm})
}

// reset ends the window of a key and limit, and reports that to the observer.
func (r *RateLimit) reset(ctx context.Context, call, key string, l Limit) error {
	if err := limits.Check(&l); err != nil {
		return callError(call, key, err)
	}
	begun, stored := time.Now(), l
	stored.Shadow = false
	if l.Max == Unlimited { // what it counted with another Max and Burst; a backend need not keep these
		stored.Max = 1
		stored.Burst = 0
	}
	_, err := change(r, stored, func(b Backend, l Limit) (none struct{}, err error) { return none, b.Reset(ctx, key, l) })
	r.queues.Refresh(countOf(key, &l))
	r.observe(ctx, Event{Kind: EventReset, Call: call, Key: key, Limit: l, Duration: time.Since(begun), Err: err}, err)
	return err
}

// Delete ends key's windows of the given scales, whatever their names and algorithms, and returns how many
// there were. Without scales, it ends those of all scales that the backend knows.
func (r *RateLimit) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	for _, scale := range scales {
		if err := limits.CheckScale(scale); err != nil {
			return 0, callError("delete", key, err)
		}
	}
	n, err := change(r, Limit{}, func(b Backend, _ Limit) (int, error) { return b.Delete(ctx, key, scales...) })
	r.queues.RefreshKey(key)
	return n, err
}

// change makes a change of what a limit has counted in the backend, and in the fallback: what is left there counts
// again while the backend is away. The result is that of the backend, and the error that of both.
func change[R any](r *RateLimit, l Limit, f func(b Backend, l Limit) (R, error)) (R, error) {
	result, err := f(r.store, l)
	if r.fallback != nil {
		if _, failed := f(r.fallback, r.share(l)); failed != nil {
			err = errors.Join(err, fmt.Errorf("in the fallback: %w", failed))
		}
	}
	return result, err
}

// countOf returns the count of a key and a limit that has its algorithm.
func countOf(key string, l *Limit) waiting.Count {
	return waiting.Count{Key: key, Of: limits.Identity(l)}
}
