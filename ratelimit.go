package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrScale says that a window's length is not positive.
var ErrScale = errors.New("throttr: scale must be positive")

// RateLimit counts hits in windows of fixed length, one for each key and scale.
//
// A window opens with the key's first hit and ends one scale later; the next hit
// opens another. Within a window every hit counts, denied ones too, and a hit is
// allowed if the count, itself included, is within the limit. So of the hits between
// a window's start and its end, limit are allowed and no more. The same key with
// another scale has another window.
//
// It is safe for any number of goroutines.
type RateLimit struct {
	backend Backend
}

// NewRateLimit returns a RateLimit that keeps its windows in backend, such as
// [Client.Backend].
func NewRateLimit(backend Backend) *RateLimit { return &RateLimit{backend: backend} }

// Backend keeps windows. Implement it to have a RateLimit on a store of your own.
//
// A window is known by key and scale, and it is active from its first hit until one
// scale later, that instant excluded. Every method returns the window as it is
// afterwards, and is safe for any number of goroutines. Scale is positive.
type Backend interface {
	// Hit adds increment to the active window, or opens one that starts with it. Once
	// the count is over limit, it may return what it knows and leave the hit uncounted.
	Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Window, error)
	// Inc adds increment to the active window, or opens one that starts with it.
	Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (Window, error)
	// Get returns the active window, or the zero Window.
	Get(ctx context.Context, key string, scale time.Duration) (Window, error)
	// Set opens a window with the given count, in place of the active one.
	Set(ctx context.Context, key string, scale time.Duration, count uint64) (Window, error)
	// Reset ends the active window, if there is one.
	Reset(ctx context.Context, key string, scale time.Duration) error
}

// Window is what a [Backend] knows of a window.
type Window struct {
	Count     uint64        // hits so far
	ExpiresAt time.Time     // when it ends, by the backend's clock; zero if there is no window
	Left      time.Duration // from now to ExpiresAt
}

// Result is the decision on a hit.
type Result struct {
	Allowed    bool
	Count      uint64        // hits in the window so far, this one included
	Limit      uint64        // as given
	Remaining  uint64        // how many more hits of 1 would be allowed now
	RetryAfter time.Duration // 0 when allowed; until the window ends when denied
	ResetAt    time.Time     // when the window ends
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
func (r *RateLimit) HitN(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Result, error) {
	if err := checkScale(scale); err != nil {
		return Result{}, err
	}
	w, err := r.backend.Hit(ctx, key, scale, limit, increment)
	if err != nil {
		return Result{}, err
	}
	res := Result{Allowed: w.Count <= limit, Count: w.Count, Limit: limit, ResetAt: w.ExpiresAt}
	if res.Allowed {
		res.Remaining = limit - w.Count
	} else {
		res.RetryAfter = w.Left
	}
	return res, nil
}

// Inc adds increment to key's window, opening one if there is none, and returns the
// count. Errors are those of [RateLimit.Hit].
func (r *RateLimit) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (uint64, error) {
	if err := checkScale(scale); err != nil {
		return 0, err
	}
	w, err := r.backend.Inc(ctx, key, scale, increment)
	return w.Count, err
}

// Get returns the count of key's window, 0 if there is none. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Get(ctx context.Context, key string, scale time.Duration) (uint64, error) {
	if err := checkScale(scale); err != nil {
		return 0, err
	}
	w, err := r.backend.Get(ctx, key, scale)
	return w.Count, err
}

// Set opens a window with the given count, in place of the one there is, so that it
// ends one scale from now. It returns the count. Errors are those of [RateLimit.Hit].
func (r *RateLimit) Set(ctx context.Context, key string, scale time.Duration, count uint64) (uint64, error) {
	if err := checkScale(scale); err != nil {
		return 0, err
	}
	w, err := r.backend.Set(ctx, key, scale, count)
	return w.Count, err
}

// ExpiresAt returns when key's window ends, the zero time if there is none. Errors are
// those of [RateLimit.Hit].
func (r *RateLimit) ExpiresAt(ctx context.Context, key string, scale time.Duration) (time.Time, error) {
	if err := checkScale(scale); err != nil {
		return time.Time{}, err
	}
	w, err := r.backend.Get(ctx, key, scale)
	return w.ExpiresAt, err
}

// Reset ends key's window: the next hit opens another. Errors are those of
// [RateLimit.Hit].
func (r *RateLimit) Reset(ctx context.Context, key string, scale time.Duration) error {
	if err := checkScale(scale); err != nil {
		return err
	}
	return r.backend.Reset(ctx, key, scale)
}

func checkScale(scale time.Duration) error {
	if scale <= 0 {
		return fmt.Errorf("%w: it is %v", ErrScale, scale)
	}
	return nil
}
