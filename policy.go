package throttr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
)

// Policy is what a [RateLimit] decides if its backend fails. It applies to Hit, HitN, Take, TakeAll,
// Reserve, Wait, WaitAll and Charge. It does not apply to mistakes in the program ([ErrScale], [ErrRange],
// [ErrUnsupported], [ErrConfig], [ErrValueSizeMismatch]), to [ErrClosed], if too many callers of Wait wait already, or
// if the caller's ctx has ended: see [WithTimeout].
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
	return api.Name(p, "unknown policy", "leave it to the caller", "allow hits", "deny hits")
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
	l.Max = max(l.Max/o.processes, min(l.Max, 1))
	l.Burst = max(l.Burst/o.processes, min(l.Burst, 1))
	return l
}

// maxDegradedRetryAfter bounds the RetryAfter of a policy's denial.
const maxDegradedRetryAfter = time.Second

// WithTimeout bounds how long a decision waits for the backend, and then for the fallback. A call that
// takes longer has failed: the error matches [ErrUnavailable]. It also bounds Peek, and the settling of a
// reservation. Backends of package memory wait for nothing, and are not bound. Default, and with 0: 250 ms. It
// panics if d is negative.
//
// It must be shorter than the deadlines that callers have. If a caller's ctx ends first, the call returns the error of
// that ctx: no policy or fallback decides, and the circuit breaker learns nothing, so that it never opens if no caller
// waits long enough.
//
// The limit of time is the deadline of the ctx that the backend gets. A backend of your own that goes on after the end
// of its ctx holds the caller up.
func WithTimeout(d time.Duration) Option {
	api.NotNegative("throttr: WithTimeout", d)
	return func(o *options) { o.outages.Timeout = d }
}

// WithBreaker sets when the circuit breaker of a backend opens, and how soon it notices that the store is back. After
// so many calls in a row that found the store away (errors that match [ErrUnavailable], errors of the network, and
// calls that took longer than [WithTimeout]), no call asks it any more: the fallback or the policy decides at once. A
// Peek of the key whose failure opened it then asks the store in the background, after pauses that grow up to the
// given one, of at least 1 ms. When it is answered, one call goes to the store again, and if that does not fail
// either, all do. If nobody has called for 10 s, the pauses grow to 30 s, the next call asks the store, and an answer
// to a Peek is enough to end the outage.
//
// Every Throttr server has a breaker, and so has each node of a Redis cluster. Mistakes in the program,
// [ErrOverloaded], and [ErrFull] for some keys only open none. Defaults, and with 0: 3 failures, 320 ms. It panics if
// a number is negative.
func WithBreaker(failures int, pause time.Duration) Option {
	api.NotNegative("throttr: WithBreaker", failures)
	api.NotNegative("throttr: WithBreaker", pause)
	return func(o *options) {
		o.outages.Failures = failures
		o.outages.Pause = pause
	}
}

// WithLogger sets where a RateLimit logs, at level WARN, that its store is away, and that it is back, with the number
// of decisions that were made meanwhile. A fallback or a policy may also decide while the circuit breaker is closed:
// the first such decision has a line at once, and further ones are counted for a line a minute. If a backend of your
// own panics when it is asked in the background, see [WithBreaker], there is a line at level ERROR with the stack,
// and the program goes on. The lines have no keys, unless the errors of a backend of your own have. Default:
// [slog.Default]. A nil logger turns the lines off.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) { o.outages.Logger = cmp.Or(l, outage.Silent) }
}

// newWatch returns what tells the program that the store of a RateLimit is away, and that it is back.
func newWatch(b Backend, o *options) *outage.Watch {
	decides := o.policy.String()
	if o.fallback != nil {
		decides = "fallback, or " + decides
	}
	return &outage.Watch{Backend: b, Logger: o.outages.Logger, DecidesMeanwhile: decides, Text: lineText,
		Observed: o.observeOutage}
}

// unwatched is for outages of fallbacks, which nobody is told.
var unwatched = &outage.Watch{Logger: outage.Silent, Text: error.Error, Observed: func(error, time.Duration) {}}

// observeOutage tells the observer that the store is away, because of a cause, or that it is back.
func (o *options) observeOutage(cause error, after time.Duration) {
	e := Event{Kind: EventAvailable, Duration: after}
	if cause != nil {
		e = Event{Kind: EventUnavailable, Err: cause}
	}
	o.observer.tell(context.Background(), e)
}

// outcome is who has decided a call, and why not the store.
type outcome struct {
	by    decider
	cause error // of the store, and if the policy has decided, of the fallback: for the observer and the log
	err   error // of the call: by nobody
}

// decider is who has decided a call.
type decider uint8

const (
	theStore    decider = iota // or no store was needed
	theFallback                // the store has failed
	thePolicy                  // so has the fallback, if there is one
	nobody
)

// failover is called after the store has failed with a cause, and returns who decides. It asks the fallback, by ask.
func (r *RateLimit) failover(ctx context.Context, cause error, ask func() error) outcome {
	if !policyApplies(ctx, cause) {
		return outcome{by: nobody, cause: cause, err: cause}
	}
	err := cause
	if r.fallback != nil {
		failed := ask()
		if failed == nil {
			return outcome{by: theFallback, cause: cause}
		}
		err = fmt.Errorf("%w; and the fallback: %w", cause, failed)
		if !policyApplies(ctx, failed) {
			return outcome{by: nobody, cause: cause, err: err}
		}
	}
	if r.policy == ReturnError {
		r.watch.Failed(cause)
		return outcome{by: nobody, cause: cause, err: err}
	}
	return outcome{by: thePolicy, cause: err}
}

// policyApplies reports whether an error is a failure of the backend: no mistake in the program, and not the end of
// the caller's ctx.
func policyApplies(ctx context.Context, err error) bool {
	return !outage.Ended(ctx) && !outage.IsMistake(err) && !errors.Is(err, ErrClosed) &&
		!errors.Is(err, ErrValueSizeMismatch)
}

// byPolicy returns the decision of the policy, which allows or denies.
func (r *RateLimit) byPolicy(l *Limit) Result {
	if r.policy == AllowHits {
		return Result{Allowed: true, Limit: limits.Capacity(l)}
	}
	wait := min(limits.Left(l, time.Now()), maxDegradedRetryAfter)
	return Result{Limit: limits.Capacity(l), RetryAfter: wait, ResetAfter: wait, ResetAt: time.Now().Add(wait)}
}

// degrade marks a result as made without the store. The store may be back soon, and grant what the share of
// this process can't hold.
func (r *RateLimit) degrade(res *Result, l *Limit) {
	res.Degraded = true
	if !res.Allowed {
		res.RetryAfter = min(res.RetryAfter, max(limits.Left(l, time.Now()), maxDegradedRetryAfter))
	}
}

// lineText returns what a line has of an error: what it says of the store, without the call and the key, which may be
// personal.
func lineText(err error) string {
	var late *outage.TimeoutError
	var request *RequestError
	switch {
	case !errors.As(err, &request):
		return outage.WithoutKey(err)
	case errors.As(err, &late):
		return "server " + request.Server + ": " + outage.WithoutKey(late)
	}
	return "server " + request.Server + failureText(request.Server, request.Err)
}

// failedPart returns the server that has failed, if an error names one.
func failedPart(err error) string {
	var request *RequestError
	if errors.As(err, &request) {
		return request.Server
	}
	return ""
}

// errNotMade returns the error of a call that was not made, because others had failed with the given cause.
func errNotMade(call, key string, cause error) error {
	var request *RequestError
	if errors.As(cause, &request) {
		e := *request
		e.Call = call
		e.Key = key
		e.Sent = false
		if !errors.Is(&e, ErrUnavailable) { // a stalled server, for example
			e.Err = fmt.Errorf("%w: %w", ErrUnavailable, e.Err)
		}
		return &e
	}
	return callError(call, key, outage.CauseOf(cause))
}
