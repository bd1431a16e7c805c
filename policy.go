package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Policy is what a [RateLimit] decides if its backend fails. It applies to Hit, HitN, Take, TakeAll,
// Reserve, Wait and Charge. It does not apply to mistakes in the program ([ErrScale], [ErrRange],
// [ErrUnsupported], [ErrConfig], [ErrValueSizeMismatch]), to [ErrClosed], or if the caller's ctx has ended.
type Policy uint8

const (
	// ReturnError returns the backend's error. The default.
	ReturnError Policy = iota
	// AllowHits allows. The limit is not enforced while the backend fails. In the Result, Count,
	// Remaining and ResetAt are unknown, and zero.
	AllowHits
	// DenyHits denies. In the Result, RetryAfter is the scale, but at most one second, and Count is
	// unknown.
	DenyHits
)

// String returns what the policy does.
func (p Policy) String() string {
	switch p {
	case ReturnError:
		return "return an error"
	case AllowHits:
		return "allow hits"
	case DenyHits:
		return "deny hits"
	default:
		return "unknown policy"
	}
}

// WithPolicy sets what is decided if the backend fails, and the fallback of [WithFallback] too. Default:
// [ReturnError]. It panics if p is unknown.
func WithPolicy(p Policy) Option {
	if p > DenyHits {
		panic("throttr: WithPolicy: unknown policy")
	}
	return func(o *options) { o.policy = p }
}

// WithFallback lets another backend decide while the first one fails, such as that of memory.New: each
// process then has the limit for itself. The Result is Degraded. What the fallback has counted is not
// added to the backend's counts.
func WithFallback(b Backend) Option { return func(o *options) { o.fallback = b } }

// WithTimeout bounds how long a call that the policy applies to waits for the backend, and then for the
// fallback. A call that takes longer has failed. 0: until its ctx ends. It panics if d is negative.
func WithTimeout(d time.Duration) Option {
	notNegative("WithTimeout", d)
	return func(o *options) { o.timeout = d }
}

// maxDegradedRetryAfter bounds the RetryAfter of a denial without a backend.
const maxDegradedRetryAfter = time.Second

// errTimeout says that a call took longer than WithTimeout allows.
var errTimeout = errors.New("throttr: backend timed out")

// bounded makes a call of a backend, in the time that it may take.
func (r *RateLimit) bounded(ctx context.Context, b Backend, v verb, key string, l *Limit, n uint64) (window.Window, error) {
	if r.timeout == 0 {
		return v.call(ctx, b, key, *l, n)
	}
	ctx, end := r.limited(ctx)
	defer end()
	w, err := v.call(ctx, b, key, *l, n)
	return w, r.timedOut(ctx, err)
}

// limited returns a context that ends when a call has taken too long.
func (r *RateLimit) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, r.timeout, errTimeout)
}

// timedOut returns the error of a call with a context of limited. It says if the call took too long.
func (r *RateLimit) timedOut(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errTimeout) {
		return err
	}
	return fmt.Errorf("%w after %v: %w", errTimeout, r.timeout, err)
}

// instead makes the decision on a call for which the backend has failed with the given cause: by the
// fallback, or by the policy.
func (r *RateLimit) instead(ctx context.Context, v verb, key string, l *Limit, n uint64, cause error) (res Result, _, err error) {
	answered, cause, err := r.failover(ctx, cause, func(b Backend) error {
		w, err := r.bounded(ctx, b, v, key, l, n)
		res.set(l, &w, v.allowed(l, &w))
		return err
	})
	switch {
	case err != nil:
		return Result{}, cause, err
	case !answered:
		r.byPolicy(&res, l)
	}
	res.Degraded = true
	return res, cause, nil
}

// failover makes a call of the fallback after the backend has failed with the given cause, and returns
// whether that has answered. If not, and err is nil, the policy decides.
func (r *RateLimit) failover(ctx context.Context, cause error, call func(b Backend) error) (answered bool, _, err error) {
	if !isOutage(ctx, cause) {
		return false, cause, cause
	}
	err = cause
	if r.fallback != nil {
		second := call(r.fallback)
		if second == nil {
			return true, cause, nil
		}
		err = fmt.Errorf("%w; and the fallback: %w", cause, second)
		if !isOutage(ctx, second) {
			return false, cause, err
		}
	}
	if r.policy == ReturnError {
		return false, cause, err
	}
	return false, err, nil
}

// byPolicy sets res to the decision of the policy, which allows or denies.
func (r *RateLimit) byPolicy(res *Result, l *Limit) {
	*res = Result{Allowed: r.policy == AllowHits, Limit: limits.Holds(*l)}
	if !res.Allowed {
		wait := min(l.Scale, maxDegradedRetryAfter)
		res.RetryAfter, res.ResetAfter, res.ResetAt = wait, wait, time.Now().Add(wait)
	}
}

// isOutage reports whether an error is a failure of the backend, to which a policy applies: no mistake in
// the program, and not the end of the caller's ctx.
func isOutage(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	if ctx.Err() != nil || ok && !time.Now().Before(deadline) {
		return false
	}
	for _, mistake := range []error{ErrRange, ErrScale, ErrUnsupported, ErrConfig, ErrClosed, ErrValueSizeMismatch} {
		if errors.Is(err, mistake) {
			return false
		}
	}
	return true
}
