package throttr

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/waiting"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// ErrScale says that a scale is not one that a backend accepts: it is less than 1 ms, or the
// backend can't store windows of it.
var ErrScale = window.ErrScale

// Backend stores windows. Package window documents what it must do. Implement it to use a
// RateLimit with a store of your own.
type Backend = window.Backend

// Window describes a window in a [Backend].
type Window = window.Window

// RateLimit counts hits in fixed windows, one for each key and scale. The scale is the length
// of the window.
//
// A window opens with the key's first hit and ends one scale later. The next hit opens another
// window. A hit is allowed if the count, with the hit itself, is at most the limit, so at most
// limit hits are allowed between the start and the end of a window. Denied hits count, too; but a
// backend need not count hits on a window that is over its limit. The same key with another scale
// has another window.
//
// These are per-key windows. Backends can also keep aligned windows, which start and end at
// multiples of the scale, and can count by a rolling algorithm, such as a token bucket, whose
// denied hits do not count: see the type Algorithm in package window.
//
// A RateLimit is safe for concurrent use.
type RateLimit struct {
	backend  Backend
	memory   *memory.Backend // the backend, if calls need not use the interface; or nil
	counting *memory.Backend // the same, if hits use [memory.Backend.HitCount], and not TakeCount; or nil
	leases   *lease.Backend  // the backend, if hits use [lease.Backend.HitCount]; or nil
	failover failover
	observer Observer

	maxWaiters int             // of a queue
	queues     *waiting.Queues // of callers of Wait
}

// Option is an option of [NewRateLimit].
type Option func(*RateLimit)

// NewRateLimit returns a RateLimit that stores its windows in backend, such as
// [Client.Backend] or a backend of package memory. It panics if backend or an option is nil.
func NewRateLimit(backend Backend, opts ...Option) *RateLimit {
	if backend == nil {
		panic("throttr: NewRateLimit: backend is nil")
	}
	r := &RateLimit{backend: backend, maxWaiters: defaultMaxWaiters}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("throttr: NewRateLimit: option %d is nil", i+1))
		}
		opt(r)
	}
	if r.maxWaiters < 1 {
		r.maxWaiters = defaultMaxWaiters
	}
	r.queues = waiting.New(r.maxWaiters)
	if r.observer == nil && r.failover.timeout <= 0 {
		// Hits need not go through the Backend interface. That applies to a memory.Backend
		// itself only: a type that embeds one may have a Hit of its own, which must be called.
		switch b := backend.(type) {
		case *memory.Backend:
			r.memory = b
		case *lease.Backend:
			r.leases = b
		case *OpenBackend:
			r.memory = b.memory()
		}
		if r.memory != nil && !r.memory.Algorithm().Rolling() {
			r.counting = r.memory
		}
	}
	return r
}

// Result is the decision on a hit.
type Result struct {
	Allowed bool
	// Degraded says that the backend failed and that a fallback or a [Policy] decided.
	Degraded  bool
	Count     uint64 // hits in the window so far, this one included if it counts
	Limit     uint64 // as given
	Remaining uint64 // how many more hits of 1 would be allowed now
	// RetryAfter is 0 if allowed. If denied, it is the time until the window ends, or, with a
	// rolling algorithm, until the same hit would be allowed.
	RetryAfter time.Duration
	// ResetAfter is the time until the window ends, or, with a rolling algorithm, until Count is 0 if
	// nobody hits. It is 0 if there is no window.
	ResetAfter time.Duration
	ResetAt    time.Time // the end of ResetAfter by the clock of the backend, which may differ from that of the program
}

// String formats the decision.
func (r Result) String() string {
	if r.Allowed {
		return fmt.Sprintf("allowed, %d of %d, %d remaining", r.Count, r.Limit, r.Remaining)
	}
	return fmt.Sprintf("denied, %d of %d, retry after %v", r.Count, r.Limit, r.RetryAfter)
}

// Hit counts one hit in key's window of the given scale, and returns whether it is within
// limit. A denial is a Result, not an error. A limit of 0 denies every hit.
//
// The error matches [ErrScale] if the scale is less than 1 ms. It is a [*RangeError] if the
// backend can't keep windows of the scale or count to the limit. Other errors are those of the
// backend, such as a [*RequestError].
func (r *RateLimit) Hit(ctx context.Context, key string, scale time.Duration, limit uint64) (Result, error) {
	return r.HitN(ctx, key, scale, limit, 1)
}

// HitN is [RateLimit.Hit] for a hit that counts as increment. It is allowed or denied as a
// whole. An increment of 0 opens a window if there is none, and counts nothing.
func (r *RateLimit) HitN(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (res Result, err error) {
	var count uint64
	var left, wait time.Duration
	var end time.Time
	var granted bool
	switch {
	case r.counting != nil:
		if count, left, end, err = r.counting.HitCount(ctx, key, scale, limit, increment); err == nil {
			res.set(count, limit, left, end)
			return res, nil
		}
	case r.memory != nil:
		if count, left, wait, end, granted, err = r.memory.TakeCount(ctx, key, scale, limit, increment); err == nil {
			res.setTaken(count, limit, left, wait, end, granted)
			return res, nil
		}
	case r.leases != nil:
		if count, left, end, granted, err = r.leases.HitCount(ctx, key, scale, limit, increment); err == nil {
			res.setTaken(count, limit, left, left, end, granted)
			return res, nil
		}
	}
	e := Event{Key: key, Scale: scale, Increment: increment}
	if err != nil {
		return r.failover.decide(ctx, &e, limit, err)
	}
	return r.hit(ctx, &e, limit)
}

// hit counts the hit that e describes, and reports the decision to the observer.
func (r *RateLimit) hit(ctx context.Context, e *Event, limit uint64) (Result, error) {
	if err := window.CheckScale(e.Scale); err != nil {
		return Result{}, callError("hit", e.Key, err)
	}
	if r.observer == nil {
		res, _, err := r.hitBackend(ctx, e, limit)
		return res, err
	}
	begun := time.Now()
	res, cause, err := r.hitBackend(ctx, e, limit)
	e.Duration, e.Result, e.Err = time.Since(begun), res, cause
	switch {
	case err != nil:
		e.Kind, e.Result, e.Err = EventFailed, Result{Limit: limit}, err
	case res.Allowed:
		e.Kind = EventAllowed
	default:
		e.Kind = EventDenied
	}
	r.observer.Observe(ctx, *e)
	return res, err
}

// hitBackend counts a hit in the backend, or, if that fails, in the fallback, or applies the
// policy. The cause is the error of the backend, whatever the result is.
func (r *RateLimit) hitBackend(ctx context.Context, e *Event, limit uint64) (res Result, cause, err error) {
	w, cause := r.failover.hit(ctx, r.backend, e, limit)
	if cause == nil {
		res.setHit(r.backend, &w, limit)
		return res, nil, nil
	}
	res, err = r.failover.decide(ctx, e, limit, cause)
	return res, cause, err
}

// set sets r to the decision on a hit. After the hit, its window has the given count; it ends at
// end, which is left from now. (set does not return a Result because the copy takes time.)
func (r *Result) set(count, limit uint64, left time.Duration, end time.Time) {
	r.Count, r.Limit, r.ResetAfter, r.ResetAt = count, limit, left, end
	if r.Allowed = count <= limit; r.Allowed {
		r.Remaining = limit - count
	} else {
		r.RetryAfter = left
	}
}

// setHit sets r to the decision on a hit that leaves w in b. What a backend has refused is denied. Of the
// rest, the count decides, unless the algorithm has decided.
func (r *Result) setHit(b Backend, w *Window, limit uint64) {
	if w.Refused || window.AlgorithmOf(b).Rolling() {
		r.setTaken(w.Count, limit, w.Left, retryAfter(w), w.ExpiresAt, !w.Refused)
		return
	}
	r.set(w.Count, limit, w.Left, w.ExpiresAt)
}

// Inc adds increment to key's window, opening one if there is none, and returns the count.
// Errors are those of [RateLimit.Hit].
func (r *RateLimit) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (uint64, error) {
	if err := window.CheckScale(scale); err != nil {
		return 0, callError("inc", key, err)
	}
	w, err := r.backend.Inc(ctx, key, scale, increment)
	return w.Count, err
}

// Get returns the count of key's window, 0 if there is none. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Get(ctx context.Context, key string, scale time.Duration) (uint64, error) {
	w, err := r.Window(ctx, key, scale)
	return w.Count, err
}

// ExpiresAt returns when key's window ends, the zero time if there is none. Errors are those
// of [RateLimit.Hit].
func (r *RateLimit) ExpiresAt(ctx context.Context, key string, scale time.Duration) (time.Time, error) {
	w, err := r.Window(ctx, key, scale)
	return w.ExpiresAt, err
}

// Window describes key's window. It returns the zero Window if there is none. Errors are those
// of [RateLimit.Hit].
func (r *RateLimit) Window(ctx context.Context, key string, scale time.Duration) (Window, error) {
	if err := window.CheckScale(scale); err != nil {
		return Window{}, callError("get", key, err)
	}
	return r.backend.Get(ctx, key, scale)
}

// Set opens a window with the given count, in place of the active one if there is one. A
// per-key window ends one scale from now. Set returns the count. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Set(ctx context.Context, key string, scale time.Duration, count uint64) (uint64, error) {
	if err := window.CheckScale(scale); err != nil {
		return 0, callError("set", key, err)
	}
	w, err := r.backend.Set(ctx, key, scale, count)
	r.queues.Refresh(key, scale)
	return w.Count, err
}

// Reset ends key's window. The next hit opens another one. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Reset(ctx context.Context, key string, scale time.Duration) error {
	return r.reset(ctx, Event{Key: key, Scale: scale})
}

// reset ends the window that e describes, and reports that to the observer.
func (r *RateLimit) reset(ctx context.Context, e Event) error {
	if err := window.CheckScale(e.Scale); err != nil {
		return callError("reset", e.Key, err)
	}
	begun := time.Now()
	err := r.backend.Reset(ctx, e.Key, e.Scale)
	r.queues.Refresh(e.Key, e.Scale)
	if r.observer != nil {
		e.Kind, e.Err, e.Duration = EventReset, err, time.Since(begun)
		if err != nil {
			e.Kind = EventFailed
		}
		r.observer.Observe(ctx, e)
	}
	return err
}

// Check returns an error if the backend, or the fallback of [WithFallback], can't keep a limit of
// so many hits in windows of the given scale. Every hit would return that error, so check limits
// when the program starts. The error matches [ErrScale], or is a [*RangeError]. Of a backend that
// does not implement [window.Checker], only the least scale is known.
func (r *RateLimit) Check(scale time.Duration, limit uint64) error {
	if err := window.CheckScale(scale); err != nil {
		return err
	}
	for _, b := range []Backend{r.backend, r.failover.fallback} {
		if c, ok := b.(window.Checker); ok {
			if err := c.Check(scale, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Delete ends key's windows of the given scales and returns how many there were. Without
// scales, it ends those of all scales that the backend knows. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	for _, scale := range scales {
		if err := window.CheckScale(scale); err != nil {
			return 0, callError("delete", key, err)
		}
	}
	return r.backend.Delete(ctx, key, scales...)
}
