package throttr

import (
	"errors"
	"fmt"
	"time"
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
	ResetAt    time.Time     // the same by the wall clock, in the local zone

	_ uint64 // 80 bytes are copied in whole steps of 16, 72 are not, and take longer
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
