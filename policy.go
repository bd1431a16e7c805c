package throttr

import (
	"time"

	"github.com/throttr-go/throttr/internal/api"
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
	if p > DenyHits {
		return "unknown policy"
	}
	return [...]string{"return an error", "allow hits", "deny hits"}[p]
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
	api.NotNegative("throttr: WithProcesses", n)
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
