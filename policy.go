package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/opt"
)

// Policy is what a [RateLimit] decides if its backend fails. It applies to Hit, HitN, Take, TakeAll,
// Reserve, Wait, WaitAll and Charge. It does not apply to mistakes in the program ([ErrScale], [ErrRange],
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

// WithFallback lets another backend decide while the first one is away, such as that of memory.New: each
// process then has the limit for itself, or, with [WithProcesses], its share. The Result is Degraded. What
// the fallback has counted is not added to the backend's counts.
func WithFallback(b Backend) Option { return func(o *options) { o.fallback = b } }

// WithProcesses says how many processes share the limits. The fallback then counts up to as large a part of
// each Max and Burst, rounded down, but at least 1. The Result has these numbers. Default, and with 0: 1. It
// panics if n is negative.
func WithProcesses(n int) Option {
	opt.NotNegative("throttr: WithProcesses", n)
	return func(o *options) { o.processes = max(uint64(n), 1) }
}

// share returns a limit for the fallback of one process.
func (o *options) share(l Limit) Limit {
	if o.processes > 1 {
		l.Max = max(l.Max/o.processes, min(l.Max, 1))
		l.Burst = max(l.Burst/o.processes, min(l.Burst, 1))
	}
	return l
}

// maxDegradedRetryAfter bounds the RetryAfter of a policy's denial.
const maxDegradedRetryAfter = time.Second

// instead makes the decision on a call for which the backend has failed with the given cause: by the
// fallback, or by the policy.
func (r *RateLimit) instead(ctx context.Context, v verb, key string, l *Limit, n uint64, cause error, res *Result) (_, err error) {
	if isOutage(ctx, cause) {
		if mistake := r.check(*l); mistake != nil { // the store was not asked, or did not say so
			cause = callError(v.String(), key, mistake)
		}
	}
	answered, cause, err := r.failover(ctx, cause, func() error {
		share := r.share(*l)
		if v != charge && res.local(&share, n) {
			return nil
		}
		return r.second.make(ctx, v, key, &share, n, res)
	})
	switch {
	case err != nil:
		*res = Result{}
		return cause, err
	case !answered:
		r.byPolicy(res, l)
	}
	r.degrade(res, l)
	r.watch.Decided(res.Allowed, cause)
	return cause, nil
}

// degrade marks a result as made without the store. The store may be back soon, and grant what the share of
// this process can't hold.
func (r *RateLimit) degrade(res *Result, l *Limit) {
	res.Degraded = true
	if !res.Allowed {
		res.RetryAfter = min(res.RetryAfter, max(l.Scale, maxDegradedRetryAfter))
	}
}

// failover makes a call of the fallback after the backend has failed with the given cause, and returns
// whether that has answered. If not, and err is nil, the policy decides.
func (r *RateLimit) failover(ctx context.Context, cause error, call func() error) (answered bool, _, err error) {
	if !isOutage(ctx, cause) {
		return false, cause, cause
	}
	err = cause
	if r.second != nil {
		fallbackErr := call()
		if fallbackErr == nil {
			return true, cause, nil
		}
		err = fmt.Errorf("%w; and the fallback: %w", cause, fallbackErr)
		if !isOutage(ctx, fallbackErr) {
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
	*res = Result{Allowed: r.policy == AllowHits, Limit: limits.Capacity(*l)}
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
	return !isMistake(err) && !errors.Is(err, ErrClosed)
}

// isMistake reports whether an error is a mistake in the program, which says nothing about the store.
func isMistake(err error) bool {
	for _, mistake := range []error{ErrRange, ErrScale, ErrUnsupported, ErrConfig, ErrValueSizeMismatch} {
		if errors.Is(err, mistake) {
			return true
		}
	}
	return false
}
