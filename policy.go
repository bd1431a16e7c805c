package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"

	windows "github.com/throttr-go/throttr/window"
)

// Policy is what becomes of a hit when the backend gives no answer.
type Policy uint8

const (
	// ReturnError returns the backend's error. The default.
	ReturnError Policy = iota
	// AllowHits allows the hit. The limit does not hold while the backend is away; only
	// what no window would let through, such as any hit with a limit of 0, is denied. Of
	// such a Result, Count, Remaining and ResetAt are unknown, and zero.
	AllowHits
	// DenyHits denies the hit. Nobody is let in while the backend is away. Of such a
	// Result, RetryAfter is the scale or a second, whichever is less, and Count is unknown.
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

// degradedRetry is what a hit that is denied because the backend is away is told to wait,
// at most.
const degradedRetry = time.Second

// outage is what a RateLimit does when its backend gives no answer.
type outage struct {
	policy   Policy
	fallback Backend       // is asked before policy decides; nil: none
	timeout  time.Duration // how long a hit waits for the backend; 0: as long as its caller
}

// WithPolicy sets what becomes of a hit when the backend gives no answer. It is no matter
// for the other methods, nor for a hit that is at fault itself: a caller who has left, a
// scale or limit that is out of range, a client that was closed. A result that a policy has
// decided is marked Degraded. Default: [ReturnError].
func WithPolicy(p Policy) Option { return func(r *RateLimit) { r.outage.policy = p } }

// WithFallback has b count the hits that the backend gives no answer to, such as package
// memory's, which holds the limit for each process by itself. What it has counted is not
// carried over when the backend is back. A result that it has decided is marked Degraded.
// If b fails as well, the [Policy] decides. A [RateLimit.Reset] does not reach b.
func WithFallback(b Backend) Option { return func(r *RateLimit) { r.outage.fallback = b } }

// WithTimeout bounds how long a hit waits for the backend before it is taken for away, and
// then for the fallback; the caller's ctx may be shorter. The hit may still be counted by
// the backend. It takes a context, and so some allocations, per hit. Default, and with 0 or
// less: no bound but ctx and those of the client.
func WithTimeout(d time.Duration) Option { return func(r *RateLimit) { r.outage.timeout = d } }

// ask has b count the hit that e describes, for no longer than the timeout.
func (o *outage) ask(ctx context.Context, b Backend, e *Event, limit uint64) (Window, error) {
	if o.timeout <= 0 {
		return b.Hit(ctx, e.Key, e.Scale, limit, e.Increment)
	}
	limited, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	w, err := b.Hit(limited, e.Key, e.Scale, limit, e.Increment)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errTimeout) {
		err = fmt.Errorf("%w for %v: %w", errTimeout, o.timeout, err)
	}
	return w, err
}

var errTimeout = errors.New("throttr: no answer from the backend")

// decide decides on a hit that the backend has failed with cause.
func (o *outage) decide(ctx context.Context, e *Event, limit uint64, cause error) (Result, error) {
	if ownFault(ctx, cause) {
		return Result{}, cause
	}
	if o.fallback != nil {
		w, err := o.ask(ctx, o.fallback, e, limit)
		if err == nil {
			res := resultOf(w, limit)
			res.Degraded = true
			return res, nil
		}
		cause = fmt.Errorf("%w; and the fallback: %w", cause, err)
		if ownFault(ctx, err) {
			return Result{}, cause
		}
	}
	switch {
	case o.policy == AllowHits && e.Increment <= limit:
		return Result{Allowed: true, Limit: limit, Degraded: true}, nil
	case o.policy == AllowHits, o.policy == DenyHits:
		wait := min(e.Scale, degradedRetry)
		return Result{Limit: limit, RetryAfter: wait, ResetAt: time.Now().Add(wait), Degraded: true}, nil
	default:
		return Result{}, cause
	}
}

// ownFault reports whether a hit has failed for a reason of its own, which no policy
// covers. That its ctx has ended may be seen by the backend, such as in a deadline of its
// connection, a little before ctx itself tells.
func ownFault(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline) ||
		errors.Is(err, ErrRange) || errors.Is(err, ErrScale) || errors.Is(err, ErrClosed) || errors.Is(err, windows.ErrClosed)
}
