package throttr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/waiting"
)

// CostError is a wait for more than a limit can ever grant. Nothing was asked of the store, and nothing
// was counted.
type CostError struct {
	Key   string
	Limit Limit
	N     uint64
}

// Error names the key, the limit and the cost.
func (e *CostError) Error() string {
	return fmt.Sprintf("throttr: key %.*q: %d can never be granted by the limit %v", maxKeyText, e.Key, e.N, e.Limit)
}

// DeadlineError is a wait that would have exceeded the deadline of its context. Nothing was taken.
// It matches [context.DeadlineExceeded].
type DeadlineError struct {
	Key   string
	Limit Limit
	At    time.Time // when the take could be granted at the earliest
}

// Error names the key and when its take could be granted.
func (e *DeadlineError) Error() string {
	return fmt.Sprintf("throttr: key %.*q: the wait until %v at least would exceed the deadline of the context", maxKeyText, e.Key, e.At.Round(0))
}

// Unwrap returns [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// defaultMaxWaiters is the default of WithMaxWaiters.
const defaultMaxWaiters = 1024

// WithMaxWaiters bounds how many callers of [RateLimit.Wait] wait for one count. Further ones fail with
// [ErrOverloaded]. Default, and with 0: 1024. It panics if n is negative.
func WithMaxWaiters(n int) Option {
	notNegative("WithMaxWaiters", n)
	return func(o *options) {
		if o.maxWaiters = n; n == 0 {
			o.maxWaiters = defaultMaxWaiters
		}
	}
}

// Wait waits until [RateLimit.Take] is granted. It is first come, first served: of the callers that wait
// for one count (key, and the limit's Name, Scale and Algorithm) with this RateLimit, only the first asks
// the backend, and the others follow in the order of their calls. Other RateLimits and processes have
// queues of their own.
//
// While the first caller waits for the end of a window, it asks every tenth of the scale, but at least
// every second, because others may give back or reset the window. It also asks when this RateLimit settles
// a reservation, or sets, resets, forgets or deletes the window.
//
// Wait fails at once, and takes nothing, in these cases:
//
//   - the limit can never grant n: a [*CostError]
//   - the callers before it take so much that its turn comes after ctx's deadline: a [*DeadlineError]
//   - too many wait already, see [WithMaxWaiters]: [ErrOverloaded]
//
// Other errors are those of ctx and of Take. A [Policy] that allows hits allows the take, and one that
// denies them makes Wait continue until the store is back. Wait sleeps by real time, also if the backend
// has a clock of its own: test it with [testing/synctest].
func (r *RateLimit) Wait(ctx context.Context, key string, limit Limit, n uint64) (res Result, err error) {
	limit = r.resolved(limit)
	if err := wait.check(&limit, n); err != nil {
		return res, callError("wait", key, err)
	}
	begun := time.Now()
	res, cause, err := r.wait(ctx, key, &limit, n)
	if r.observer != nil {
		r.observe(ctx, Event{Call: "wait", Key: key, Limit: limit, N: n, Result: res, Duration: time.Since(begun), Err: cause}, err)
	}
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// wait waits for a take. The cause is the error of the backend in the last call. With a CostError or a
// DeadlineError, res is the denial.
func (r *RateLimit) wait(ctx context.Context, key string, l *Limit, n uint64) (res Result, cause, err error) {
	if res.local(l, n) {
		if !res.Allowed {
			err = &CostError{Key: key, Limit: *l, N: n}
		}
		return res, err, err
	}
	turn := waiting.Turn{Count: countOf(key, l), Limit: limits.Holds(*l), N: n}
	traits, _ := r.backend.Check(*l) // what is wrong with the limit, the take tells
	err = r.queues.Wait(ctx, turn, func(ctx context.Context) (a waiting.Answer, err error) {
		asked := time.Now()
		if res, cause, err = r.ask(ctx, wait, key, l, n); err != nil {
			return a, err
		}
		a = waiting.Answer{Granted: res.Allowed, Count: res.Count, Left: res.RetryAfter}
		if a.Granted { // RetryAfter is 0
			a.Left = min(res.ResetAfter, l.Scale)
		}
		if a.Early = traits.Precision + time.Since(asked); res.Degraded {
			a.Early = a.Left // the store may be back at any time
		}
		return a, nil
	})
	var late *waiting.LateError
	switch {
	case errors.As(err, &late):
		res = Result{Limit: turn.Limit, RetryAfter: time.Until(late.At), ResetAfter: time.Until(late.At), ResetAt: late.At.Round(0)}
		err = &DeadlineError{Key: key, Limit: *l, At: late.At.Round(0)}
		cause = err
	case errors.Is(err, waiting.ErrFull):
		err = fmt.Errorf("%w: %d callers wait for key %.*q already", ErrOverloaded, r.maxWaiters, maxKeyText, key)
	case err != nil && err == ctx.Err(): // ctx has ended in the queue
		err = fmt.Errorf("throttr: wait %.*q: %w", maxKeyText, key, err)
	}
	return res, cause, err
}
