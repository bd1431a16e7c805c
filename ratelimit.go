package throttr

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/shortcut"
	windows "github.com/throttr-go/throttr/window"
)

// ErrScale says that a scale is not one that a backend accepts: it is less than 1 ms, or the
// backend can't store windows of it.
var ErrScale = windows.ErrScale

// Backend keeps windows: package window says what it must do. Implement it to have a
// RateLimit on a store of your own.
type Backend = windows.Backend

// Window is what a [Backend] knows of a window.
type Window = windows.Window

// RateLimit counts hits in windows of fixed length, one for each key and scale.
//
// A window opens with the key's first hit and ends one scale later; the next hit
// opens another. Within a window every hit counts, denied ones too, and a hit is
// allowed if the count, itself included, is within the limit. So of the hits between
// a window's start and its end, limit are allowed and no more. The same key with
// another scale has another window. (This is the per-key window. Backends can keep aligned
// ones, which start and end at multiples of the scale: see package window's Algorithm.)
//
// It is safe for any number of goroutines.
type RateLimit struct {
	backend  Backend
	counter  shortcut.Counter // the backend's, if nothing but the count is to be done; or nil
	outage   outage
	observer Observer
}

// Option changes how [NewRateLimit] works.
type Option func(*RateLimit)

// NewRateLimit returns a RateLimit that keeps its windows in backend, such as
// [Client.Backend], or package memory's.
func NewRateLimit(backend Backend, opts ...Option) *RateLimit {
	r := &RateLimit{backend: backend}
	for _, opt := range opts {
		opt(r)
	}
	if r.observer == nil && r.outage.timeout <= 0 {
		r.counter = shortcut.Of(backend)
	}
	return r
}

// Result is the decision on a hit.
type Result struct {
	Allowed    bool
	Count      uint64        // hits in the window so far, this one included
	Limit      uint64        // as given
	Remaining  uint64        // how many more hits of 1 would be allowed now
	RetryAfter time.Duration // 0 when allowed; until the window ends when denied
	ResetAt    time.Time     // when the window ends
	// Degraded says that the backend gave no answer, so that a [Policy] has decided.
	Degraded bool
}

// String returns the decision in words.
func (r Result) String() string {
	if r.Allowed {
		return fmt.Sprintf("allowed, %d of %d, %d remaining", r.Count, r.Limit, r.Remaining)
	}
	return fmt.Sprintf("denied, %d of %d, retry after %v", r.Count, r.Limit, r.RetryAfter)
}

// Hit counts one hit on key's window of the given scale and tells whether it is
// within limit. A denial is a Result and no error. A limit of 0 denies.
//
// Errors: [ErrScale]; a [*RangeError] where the backend can't keep the scale or count
// to the limit; those of the backend, such as a [*RequestError].
func (r *RateLimit) Hit(ctx context.Context, key string, scale time.Duration, limit uint64) (Result, error) {
	return r.HitN(ctx, key, scale, limit, 1)
}

// HitN is [RateLimit.Hit] for a hit that counts for increment. All of it counts, even
// if it is denied. An increment of 0 only asks, and opens a window if there is none.
func (r *RateLimit) HitN(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (res Result, err error) {
	if r.counter == nil || scale <= 0 {
		return r.hit(ctx, &Event{Key: key, Scale: scale, Increment: increment}, limit)
	}
	n, _, left, end, err := r.counter.Count(ctx, key, scale, limit, increment)
	if err != nil {
		return r.outage.decide(ctx, &Event{Key: key, Scale: scale, Increment: increment}, limit, err)
	}
	res.decide(n, limit, left, end)
	return res, nil
}

// hit decides on a hit and tells the observer. The event says what is hit.
func (r *RateLimit) hit(ctx context.Context, e *Event, limit uint64) (Result, error) {
	if err := checkScale(e.Scale); err != nil {
		return Result{}, err
	}
	if r.observer == nil {
		res, _, err := r.decide(ctx, e, limit)
		return res, err
	}
	begun := time.Now()
	res, cause, err := r.decide(ctx, e, limit)
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

// decide asks the backend and, if that fails, the policy. Cause is why the backend has
// failed, whatever has come of it.
func (r *RateLimit) decide(ctx context.Context, e *Event, limit uint64) (res Result, cause, err error) {
	w, err := r.outage.ask(ctx, r.backend, e, limit)
	if err == nil {
		return resultOf(w, limit), nil, nil
	}
	res, degraded := r.outage.decide(ctx, e, limit, err)
	return res, err, degraded
}

// resultOf makes a decision of a window that a hit has been counted in.
func resultOf(w Window, limit uint64) (res Result) {
	res.decide(w.Count, limit, w.Left, w.ExpiresAt)
	return res
}

// decide makes r the decision on a hit that was the n-th in a window that ends at end.
func (r *Result) decide(n, limit uint64, left time.Duration, end time.Time) {
	r.Count, r.Limit, r.ResetAt = n, limit, end
	if r.Allowed = n <= limit; r.Allowed {
		r.Remaining = limit - n
	} else {
		r.RetryAfter = left
	}
}

// Inc adds increment to key's window, opening one if there is none, and returns the
// count. Errors are those of [RateLimit.Hit].
func (r *RateLimit) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (uint64, error) {
	w, err := r.call(scale, func() (Window, error) { return r.backend.Inc(ctx, key, scale, increment) })
	return w.Count, err
}

// Get returns the count of key's window, 0 if there is none. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Get(ctx context.Context, key string, scale time.Duration) (uint64, error) {
	w, err := r.Window(ctx, key, scale)
	return w.Count, err
}

// ExpiresAt returns when key's window ends, the zero time if there is none. Errors are
// those of [RateLimit.Hit].
func (r *RateLimit) ExpiresAt(ctx context.Context, key string, scale time.Duration) (time.Time, error) {
	w, err := r.Window(ctx, key, scale)
	return w.ExpiresAt, err
}

// Window returns all that the backend knows of key's window, the zero Window if there is
// none. Errors are those of [RateLimit.Hit].
func (r *RateLimit) Window(ctx context.Context, key string, scale time.Duration) (Window, error) {
	return r.call(scale, func() (Window, error) { return r.backend.Get(ctx, key, scale) })
}

// Set opens a window with the given count, in place of the one there is, so that a per-key
// one ends one scale from now. It returns the count. Errors are those of [RateLimit.Hit].
func (r *RateLimit) Set(ctx context.Context, key string, scale time.Duration, count uint64) (uint64, error) {
	w, err := r.call(scale, func() (Window, error) { return r.backend.Set(ctx, key, scale, count) })
	return w.Count, err
}

// Reset ends key's window: the next hit opens another. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Reset(ctx context.Context, key string, scale time.Duration) error {
	return r.reset(ctx, Event{Key: key, Scale: scale})
}

// reset ends a window and tells the observer.
func (r *RateLimit) reset(ctx context.Context, e Event) error {
	if err := checkScale(e.Scale); err != nil {
		return err
	}
	begun := time.Now()
	err := r.backend.Reset(ctx, e.Key, e.Scale)
	if r.observer != nil {
		e.Kind, e.Err, e.Duration = EventReset, err, time.Since(begun)
		if err != nil {
			e.Kind = EventFailed
		}
		r.observer.Observe(ctx, e)
	}
	return err
}

// Delete ends key's windows of the given scales, or, without any, of all scales that the
// backend knows of, and returns how many there were. Errors are those of [RateLimit.Hit].
func (r *RateLimit) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	for _, scale := range scales {
		if err := checkScale(scale); err != nil {
			return 0, err
		}
	}
	return r.backend.Delete(ctx, key, scales...)
}

// call makes a call that is no hit.
func (r *RateLimit) call(scale time.Duration, f func() (Window, error)) (Window, error) {
	if err := checkScale(scale); err != nil {
		return Window{}, err
	}
	return f()
}

func checkScale(scale time.Duration) error {
	if scale <= 0 {
		return fmt.Errorf("%w: it is %v", ErrScale, scale)
	}
	return nil
}
