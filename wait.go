package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/waiting"
	"github.com/throttr-go/throttr/window"
)

// DeadlineError is a wait that would have exceeded the deadline of its context. Nothing was taken. It
// matches [context.DeadlineExceeded].
type DeadlineError struct {
	Key   string
	Scale time.Duration // the length of the window
	At    time.Time     // when the take could be granted at the earliest
}

// Error names the key and when its take could be granted.
func (e *DeadlineError) Error() string {
	return fmt.Sprintf("throttr: key %.64q: the wait until %v at least would exceed the deadline of the context", e.Key, e.At)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// defaultMaxWaiters is the default of WithMaxWaiters.
const defaultMaxWaiters = 1024

// WithMaxWaiters bounds how many callers of [RateLimit.Wait] wait for windows of one key and scale.
// Further ones fail with [ErrOverloaded]. Default, and with n below 1: 1024.
func WithMaxWaiters(n int) Option { return func(r *RateLimit) { r.maxWaiters = n } }

// Wait waits until [RateLimit.Take] is granted. It is first come, first served: of the callers that
// wait for windows of one key and scale with this RateLimit, only the first asks the backend, and
// the others follow in the order of their calls. Other RateLimits and processes have queues of their
// own.
//
// While the first caller waits for the end of a window, it asks every tenth of the scale, but at least
// every second, and when a reservation of this RateLimit is settled: somebody may have given back or
// reset the window.
//
// Wait fails at once, and nothing is taken, with a [*CostError] if n is more than limit, with a
// [*DeadlineError] if all those before it and the current window leave no room before ctx's deadline,
// and with [ErrOverloaded] if too many wait already: see [WithMaxWaiters]. Other errors are those of
// ctx and of Take. A [Policy] that allows hits allows the take, and one that denies them makes Wait
// continue, until the backend works again.
func (r *RateLimit) Wait(ctx context.Context, key string, scale time.Duration, limit, n uint64) (Result, error) {
	return r.wait(ctx, Event{Key: key, Scale: scale, Increment: n}, limit)
}

// wait waits for the take that e describes, and reports the decision to the observer.
func (r *RateLimit) wait(ctx context.Context, e Event, limit uint64) (res Result, err error) {
	if err := window.CheckScale(e.Scale); err != nil {
		return res, err
	}
	if err := checkCost(e.Key, e.Scale, limit, e.Increment); err != nil {
		return res, err
	}
	begun := time.Now()
	t := taking{limits: []Limit{{Key: e.Key, Scale: e.Scale, Limit: limit, N: e.Increment}}, event: e}
	var cause error
	turn := waiting.Turn{Key: e.Key, Scale: e.Scale, Limit: limit, N: e.Increment}
	err = r.queues.Wait(ctx, turn, func(ctx context.Context) (a waiting.Answer, err error) {
		if cause, err = r.failover.takeAll(ctx, r.backend, &t); err != nil {
			return a, err
		}
		res := &t.results[0]
		a = waiting.Answer{Granted: res.Allowed, Count: res.Count, Left: res.RetryAfter}
		if a.Granted { // RetryAfter is 0
			a.Left = min(time.Until(res.ResetAt), e.Scale)
		}
		return a, nil
	})
	var late *waiting.LateError
	switch {
	case errors.As(err, &late):
		err = &DeadlineError{Key: e.Key, Scale: e.Scale, At: late.At}
	case errors.Is(err, waiting.ErrFull):
		err = fmt.Errorf("%w: %d callers wait for key %.64q already", ErrOverloaded, r.maxWaiters, e.Key)
	}
	if r.observer != nil {
		r.observeTakes(ctx, &t, time.Since(begun), cause, err)
	}
	if err != nil {
		return Result{}, err
	}
	return t.results[0], nil
}
