package throttr

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Result is the decision on one call. The zero Result denies.
type Result struct {
	Allowed    bool
	Degraded   bool          // decided without the store: by the policy or the fallback
	Count      uint64        // in the window, this call included if it counts
	Limit      uint64        // Max; the burst of a token bucket
	Remaining  uint64        // how much more would be granted now
	RetryAfter time.Duration // if denied: when the same call would be granted; [Never]
	ResetAfter time.Duration // until the window ends, or the bucket is full
	ResetAt    time.Time     // the same by the wall clock
}

// String formats the decision.
func (r Result) String() string {
	if r.Allowed {
		return fmt.Sprintf("allowed, %d of %d, %d remaining", r.Count, r.Limit, r.Remaining)
	}
	return fmt.Sprintf("denied, %d of %d, %s", r.Count, r.Limit, retryText(r.RetryAfter))
}

// Err returns a [*RateLimitError] if r is a denial, and nil otherwise.
func (r Result) Err() error {
	if r.Allowed {
		return nil
	}
	return &RateLimitError{Result: r}
}

// ErrRateLimited says that a limit is exceeded. See [RateLimitError].
var ErrRateLimited = errors.New("throttr: rate limit exceeded")

// RateLimitError is a denial as an error: see [Result.Err] and package entities. It matches
// [ErrRateLimited].
type RateLimitError struct {
	Key    string // who is limited; empty if unknown
	Limit  Limit  // the rule; zero if unknown
	Result Result
}

// Error names the key, the limit and the time to wait, as far as they are known.
func (e *RateLimitError) Error() string {
	text := ErrRateLimited.Error()
	if e.Key != "" {
		text += fmt.Sprintf(": key %.*q", maxKeyText, e.Key)
	}
	if e.Limit != (Limit{}) {
		text += ": " + e.Limit.String()
	}
	return text + "; " + retryText(e.Result.RetryAfter)
}

// Unwrap returns [ErrRateLimited].
func (e *RateLimitError) Unwrap() error { return ErrRateLimited }

func retryText(d time.Duration) string {
	if d >= Never {
		return "never granted"
	}
	return fmt.Sprintf("retry after %v", d)
}

// setWindow sets r to a decision that leaves the window w.
func (r *Result) setWindow(l *Limit, w *window.Window, allowed bool) {
	r.set(limits.Capacity(*l), w.Count, w.Left, cmp.Or(w.RetryAfter, w.Left, l.Scale), w.ExpiresAt, allowed)
}

// set sets r, which is zero, to a decision. Retry says when the call would be granted if it is not.
func (r *Result) set(holds, count uint64, left, retry time.Duration, end time.Time, allowed bool) {
	r.Allowed, r.Count, r.Limit, r.ResetAfter, r.ResetAt = allowed, count, holds, left, end
	if count < holds {
		r.Remaining = holds - count
	}
	if !allowed {
		r.RetryAfter = retry
	}
}

// pass makes r, which is of a call of a shadow limit that has returned err, a decision that allows.
func (r *Result) pass(l *Limit, err error) {
	if err != nil {
		*r = Result{Degraded: true, Limit: limits.Capacity(*l)}
	}
	r.Allowed, r.RetryAfter = true, 0
}

// local sets r to the decision on n of a limit if no store is needed for it: the limit is Unlimited, or
// can never grant so much.
func (r *Result) local(l *Limit, n uint64) bool {
	switch holds := limits.Capacity(*l); {
	case l.Max == Unlimited:
		*r = Result{Allowed: true, Limit: Unlimited, Remaining: Unlimited}
	case n > holds, l.Max == 0:
		*r = Result{Limit: holds, RetryAfter: Never}
	default:
		return false
	}
	return true
}
