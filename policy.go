package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Policy is the decision on a hit if the backend fails.
type Policy uint8

const (
	// ReturnError returns the backend's error. The default.
	ReturnError Policy = iota
	// AllowHits allows the hit. The limit is not enforced while the backend fails. Only a hit
	// that no window would allow is denied, such as any hit with a limit of 0. In the Result,
	// Count, Remaining and ResetAt are unknown, and zero.
	AllowHits
	// DenyHits denies the hit. No hit is allowed while the backend fails. In the Result,
	// RetryAfter is the scale, but at most one second, and Count is unknown.
	DenyHits
)

// String returns the policy's name.
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

// maxDegradedRetryAfter bounds the RetryAfter of a hit that is denied because the backend fails.
const maxDegradedRetryAfter = time.Second

// failover is what a RateLimit does if its backend fails.
type failover struct {
	policy   Policy
	fallback Backend       // counts hits instead of the backend; nil: none
	timeout  time.Duration // how long a hit waits for a backend; 0: until its ctx ends
}

// WithPolicy sets the decision on a hit or take if the backend fails. It applies to no other
// methods. It does not apply if the failure is not the backend's: the caller's ctx has ended, a
// scale or limit is out of range, the backend does not support what is asked of it, the client or
// backend has been closed, or a server's value size is not the client's. The Result of a
// policy is marked Degraded. Default: [ReturnError].
func WithPolicy(p Policy) Option { return func(r *RateLimit) { r.failover.policy = p } }

// WithFallback makes b count a hit if the backend fails. A backend of package memory as b
// enforces the limit in each process separately. The counts of b are not added to the backend
// when it works again. The Result is marked Degraded. If b fails as well, the [Policy]
// applies. [RateLimit.Reset] does not reset windows in b. A nil b is no fallback, the default.
func WithFallback(b Backend) Option { return func(r *RateLimit) { r.failover.fallback = b } }

// WithTimeout bounds how long a hit waits for the backend, and then for the fallback. After
// that, the backend has failed, although it may still count the hit. The caller's ctx may end
// earlier. A timeout takes a context, and so some allocations, per hit. Default, and with 0 or
// less: the only bounds are ctx and those of the client.
func WithTimeout(d time.Duration) Option { return func(r *RateLimit) { r.failover.timeout = d } }

// hit counts the hit that e describes in b, and waits no longer than the timeout.
func (f *failover) hit(ctx context.Context, b Backend, e *Event, limit uint64) (w Window, err error) {
	if f.timeout <= 0 {
		return b.Hit(ctx, e.Key, e.Scale, limit, e.Increment)
	}
	err = f.bounded(ctx, func(ctx context.Context) (err error) {
		w, err = b.Hit(ctx, e.Key, e.Scale, limit, e.Increment)
		return err
	})
	return w, err
}

// bounded makes a call whose ctx ends with the timeout.
func (f *failover) bounded(ctx context.Context, call func(context.Context) error) error {
	if f.timeout <= 0 {
		return call(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeout)
	defer cancel()
	err := call(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errTimeout) {
		err = fmt.Errorf("%w after %v: %w", errTimeout, f.timeout, err)
	}
	return err
}

var errTimeout = errors.New("throttr: backend timed out")

// decide returns the decision on a hit that the backend has failed to count. The cause is the
// backend's error.
func (f *failover) decide(ctx context.Context, e *Event, limit uint64, cause error) (res Result, err error) {
	if !isOutage(ctx, cause) || errors.Is(cause, errors.ErrUnsupported) {
		return Result{}, cause
	}
	if f.fallback != nil {
		w, err := f.hit(ctx, f.fallback, e, limit)
		if err == nil {
			res.setHit(f.fallback, &w, limit)
			res.Degraded = true
			return res, nil
		}
		cause = fmt.Errorf("%w; and the fallback: %w", cause, err)
		if !isOutage(ctx, err) {
			return Result{}, cause
		}
	}
	switch {
	case f.policy == AllowHits && e.Increment <= limit:
		return Result{Allowed: true, Limit: limit, Degraded: true}, nil
	case f.policy == AllowHits, f.policy == DenyHits:
		wait := min(e.Scale, maxDegradedRetryAfter)
		return Result{Limit: limit, RetryAfter: wait, ResetAfter: wait, ResetAt: time.Now().Add(wait), Degraded: true}, nil
	default:
		return Result{}, cause
	}
}

// isOutage reports whether err is a failure of a backend, to which policies apply, and neither
// the end of the caller's ctx nor a mistake in the program. A backend may see the end of ctx a
// little before ctx does, for example as a deadline of its connection.
func isOutage(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() == nil && (!ok || time.Now().Before(deadline)) &&
		!errors.Is(err, ErrRange) && !errors.Is(err, ErrScale) && !errors.Is(err, ErrClosed) &&
		!errors.Is(err, ErrValueSizeMismatch)
}

// takeAll makes the takes of t in a backend, or, if that fails, in the fallback, or applies the
// policy. The cause is the error of the backend, whatever the decision is.
func (f *failover) takeAll(ctx context.Context, b Backend, t *taking) (cause, err error) {
	if cause = t.event.Err; cause == nil {
		cause = f.takeFrom(ctx, b, t)
	}
	if cause == nil {
		return nil, nil
	}
	if !isOutage(ctx, cause) || errors.Is(cause, errors.ErrUnsupported) {
		return cause, cause
	}
	err = cause
	if f.fallback != nil {
		second := f.takeFrom(ctx, f.fallback, t)
		if second == nil {
			t.degrade()
			return cause, nil
		}
		err = fmt.Errorf("%w; and the fallback: %w", cause, second)
		if !isOutage(ctx, second) {
			return cause, err
		}
	}
	if f.policy != AllowHits && f.policy != DenyHits {
		return cause, err
	}
	t.decide(f.policy == AllowHits)
	return err, nil
}

// takeFrom makes the takes of t in a backend, and waits no longer than the timeout.
func (f *failover) takeFrom(ctx context.Context, b Backend, t *taking) (err error) {
	taker, ok := b.(window.Taker)
	if !ok {
		return errNoTaker
	}
	windows, granted := make([]Window, len(t.limits)), false
	err = f.bounded(ctx, func(ctx context.Context) (err error) {
		if len(t.limits) != 1 {
			granted, err = taker.TakeAll(ctx, t.limits, windows)
			return err
		}
		l := &t.limits[0]
		windows[0], granted, err = taker.Take(ctx, l.Key, l.Scale, l.Limit, l.N)
		return err
	})
	if err == nil {
		t.granted, t.results = granted, takeResults(t.limits, windows, granted)
		t.windows, t.backend, t.store = windows, taker, b
	}
	return err
}

// degrade marks the results of t as those of a fallback or policy.
func (t *taking) degrade() {
	for i := range t.results {
		t.results[i].Degraded = true
	}
}

// decide decides on t by a policy.
func (t *taking) decide(granted bool) {
	t.granted, t.windows, t.backend, t.store = granted, nil, nil, nil
	t.results = make([]Result, len(t.limits))
	for i, l := range t.limits {
		t.results[i] = Result{Allowed: granted, Limit: l.Limit}
		if !granted {
			wait := min(l.Scale, maxDegradedRetryAfter)
			t.results[i].RetryAfter, t.results[i].ResetAfter, t.results[i].ResetAt = wait, wait, time.Now().Add(wait)
		}
	}
	t.degrade()
}
