package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/opt"
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

// WithMaxWaiters bounds how many callers of [RateLimit.Wait] and [RateLimit.WaitAll] wait for one count.
// Further ones fail with [ErrOverloaded]. Default, and with 0: 1024. It panics if n is negative.
func WithMaxWaiters(n int) Option {
	opt.NotNegative("throttr: WithMaxWaiters", n)
	return func(o *options) { o.maxWaiters = n }
}

// Wait waits until [RateLimit.Take] is granted. It is [RateLimit.WaitAll] with one take.
func (r *RateLimit) Wait(ctx context.Context, key string, limit Limit, n uint64) (Result, error) {
	t := taking{call: "wait"}
	t.one.take[0] = limit.For(key, n)
	t.takes = t.one.take[:]
	if err := r.wait(ctx, &t); err != nil {
		return Result{}, err
	}
	return t.results[0], nil
}

// WaitAll waits until [RateLimit.TakeAll] is granted. The caller settles the Reservation, or ignores it if
// all that was taken is used.
//
// It is first come, first served: of the callers that wait for one count (key, and the limit's Name, Scale
// and Algorithm) with this RateLimit, only the first asks the backend, and the others follow in the order of
// their calls. A caller that waits for several counts asks when it is the first in each of their queues, so
// small takes do not overtake it, and it holds nothing while it waits. Other RateLimits and processes have
// queues of their own.
//
// While the first caller waits for the end of a window, it asks every tenth of the scale, but at least
// every second, because others may give back or reset the window. It also asks when this RateLimit settles
// a reservation, or sets, resets, forgets or deletes the window.
//
// WaitAll fails at once, and takes nothing, in these cases:
//
//   - a limit can never grant its take: a [*CostError]
//   - the callers before it take so much that its turn comes after ctx's deadline: a [*DeadlineError]
//   - too many wait already, see [WithMaxWaiters]: [ErrOverloaded]
//
// Other errors are those of ctx and of TakeAll. A [Policy] that allows hits allows the takes, and one that
// denies them makes WaitAll continue until the store is back. WaitAll sleeps by real time, also if the
// backend has a clock of its own: test it with [testing/synctest].
func (r *RateLimit) WaitAll(ctx context.Context, takes ...Take) (*Reservation, error) {
	rv := &Reservation{limiter: r, taking: taking{call: "wait"}}
	rv.taking.copy(takes)
	if err := r.wait(ctx, &rv.taking); err != nil {
		return nil, err
	}
	return rv, nil
}

// wait waits for the takes of t, and reports the decision to the observer.
func (r *RateLimit) wait(ctx context.Context, t *taking) error {
	if err := r.prepare(t); err != nil {
		return err
	}
	begun := time.Now()
	cause, err := r.waitMerged(ctx, t)
	if err == nil {
		r.takeShadows(ctx, t)
	}
	if r.observer != nil {
		r.observeTakes(ctx, t, time.Since(begun), cause, err)
	}
	return err
}

// waitMerged waits for the takes of t. The cause is the error of the backend in the last call. With a
// CostError or a DeadlineError, it is that, the wait is in vain, and the results are the denial.
func (r *RateLimit) waitMerged(ctx context.Context, t *taking) (cause, err error) {
	t.merge()
	if t.never() {
		i := slices.IndexFunc(t.results, func(res Result) bool { return !res.Allowed })
		m := &t.merged[t.index[i]]
		err = &CostError{Key: m.Key, Limit: m.Limit, N: m.N}
		t.inVain = true
		return err, err
	}
	if len(t.merged) == 0 {
		t.granted = true
		return nil, nil
	}
	counts := t.merged
	turns, early := make([]waiting.Turn, 0, fewTakes), make([]time.Duration, 0, fewTakes)
	for i := range counts {
		m := &counts[i]
		turns = append(turns, waiting.Turn{Count: countOf(m.Key, &m.Limit), Limit: limits.Capacity(m.Limit), N: m.N})
		traits, _ := r.backend.Check(m.Limit) // what is wrong with the limit, the take tells
		early = append(early, traits.Precision)
	}
	var failed error // of the last take
	err = r.queues.Wait(ctx, turns, func(ctx context.Context, answers []waiting.Answer) (bool, error) {
		clear(t.results)
		t.granted, t.merged, t.windows, t.store, t.asked = false, counts, nil, nil, time.Now()
		if cause, failed = r.takeMerged(ctx, t); failed != nil {
			return false, failed
		}
		took := time.Since(t.asked)
		t.setResults(func(_ *Take, i int, res *Result) { answers[i] = answerOf(res, turns[i].Scale, early[i]+took) })
		return t.granted, nil
	})
	if err == nil || failed != nil {
		return cause, err
	}
	var late *waiting.LateError
	switch {
	case errors.As(err, &late):
		m := &counts[late.Turn]
		t.deny(late.Turn, late.At)
		err = &DeadlineError{Key: m.Key, Limit: m.Limit, At: late.At.Round(0)}
		t.inVain = true
		cause = err
	case errors.Is(err, waiting.ErrFull):
		err = fmt.Errorf("%w: %d callers wait for key %.*q already", ErrOverloaded, r.maxWaiters, maxKeyText, counts[0].Key)
	default: // ctx has ended in the queue
		err = fmt.Errorf("throttr: wait %.*q: %w", maxKeyText, counts[0].Key, err)
	}
	return cause, err
}

// answerOf returns what a result says about a count, at a time that may be so much too late.
func answerOf(res *Result, scale, early time.Duration) waiting.Answer {
	a := waiting.Answer{Refused: !res.Allowed, Count: res.Count, Left: res.RetryAfter, Early: early}
	if res.Allowed { // RetryAfter is 0
		a.Left = min(res.ResetAfter, scale)
	}
	if res.Degraded {
		a.Early = a.Left // the store may be back at any time
	}
	return a
}

// deny sets the results to a denial, because of a merged take that can be granted at a time only.
func (t *taking) deny(at int, when time.Time) {
	t.granted = false
	t.setResults(func(m *Take, i int, res *Result) {
		*res = Result{Allowed: i != at, Limit: limits.Capacity(m.Limit)}
		if i == at {
			res.RetryAfter, res.ResetAfter, res.ResetAt = time.Until(when), time.Until(when), when.Round(0)
		}
	})
}
