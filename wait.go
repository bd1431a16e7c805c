package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/api"
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
	return fmt.Sprintf("throttr: key %.*q: the wait until %v at least would exceed the deadline of the context",
		maxKeyText, e.Key, e.At.Round(0))
}

// Unwrap returns [context.DeadlineExceeded].
func (e *DeadlineError) Unwrap() error { return context.DeadlineExceeded }

// defaultMaxWaiters is the default of WithMaxWaiters.
const defaultMaxWaiters = 1024

// WithMaxWaiters bounds how many callers of [RateLimit.Wait] and [RateLimit.WaitAll] wait for one count.
// Further ones fail with [ErrOverloaded]. Default, and with 0: 1024. It panics if n is negative.
func WithMaxWaiters(n int) Option {
	api.NotNegative("throttr: WithMaxWaiters", n)
	return func(o *options) { o.maxWaiters = n }
}

// Wait waits until [RateLimit.Take] is granted. It is [RateLimit.WaitAll] with one take.
//
// Timers wake a caller about a millisecond late. A token bucket that is full by then refills no further, so waits reach
// its rate only if its Burst lasts for some milliseconds. At 500 to 15,000 a second, a Burst of Max*10ms/Scale reaches
// 98 % of the rate, and one of Max*20ms/Scale 99 %; a Burst of 1 reaches at most some 850 a second, and 73 % of 500. So
// it is with the Max of a limit with another algorithm and a Scale of a few milliseconds.
func (r *RateLimit) Wait(ctx context.Context, key string, limit Limit, n uint64) (Result, error) {
	rv, err := r.WaitAll(ctx, limit.For(key, n))
	if err != nil {
		return Result{}, err
	}
	return rv.results[0], nil
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
// So each is granted in a round trip of its own: on a store that is a millisecond away, up to 1000 a second of a count,
// however large the Max. Callers of Take share round trips.
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
	rv, _, err := r.reserve(ctx, wait, takes)
	return rv, err
}

// awaitTurn asks for the merged takes of t when it is their turn, until they are granted. If they never are, or too
// late, the results are the denial.
func (r *RateLimit) awaitTurn(ctx context.Context, t *taking, never bool) error {
	if never {
		i := slices.IndexFunc(t.results, func(res Result) bool { return !res.Allowed })
		m := &t.merged[indexOf(t.index, i)]
		t.inVain = true
		return &CostError{Key: m.Key, Limit: m.Limit, N: m.N}
	}
	turns := make([]waiting.Turn, 0, fewTakes)
	for i := range t.merged {
		m := &t.merged[i]
		traits, _ := r.store.Check(m.Limit) // what is wrong with the limit, the take tells
		turns = append(turns, waiting.Turn{Count: countOf(m.Key, &m.Limit), Limit: limits.Capacity(&m.Limit), N: m.N,
			Early: traits.Precision})
	}
	err := r.queues.Wait(ctx, turns, func(ctx context.Context, answers []waiting.Answer) (bool, error) {
		asked := time.Now()
		r.answerAll(ctx, t)
		took := time.Since(asked)
		for i := range t.results {
			if at := indexOf(t.index, i); at >= 0 {
				answers[at] = answerOf(&t.results[i], &turns[at], took)
			}
		}
		return t.granted, t.err
	})
	if err == nil || t.err != nil {
		return err
	}
	var late *waiting.LateError
	switch {
	case errors.As(err, &late):
		m := &t.merged[late.Turn]
		t.deny(late.Turn, late.At)
		return &DeadlineError{Key: m.Key, Limit: m.Limit, At: late.At.Round(0)}
	case errors.Is(err, waiting.ErrFull):
		return fmt.Errorf("%w: %d callers wait for key %.*q already", ErrOverloaded, r.maxWaiters, maxKeyText,
			t.merged[0].Key)
	}
	return fmt.Errorf("throttr: wait %.*q: %w", maxKeyText, t.merged[0].Key, err) // ctx has ended in the queue
}

// answerOf returns what a result says about a turn, after a call that took so long.
func answerOf(res *Result, t *waiting.Turn, took time.Duration) waiting.Answer {
	a := waiting.Answer{Refused: !res.Allowed, Count: res.Count, Left: res.RetryAfter, Early: t.Early + took}
	if res.Allowed { // RetryAfter is 0
		a.Left = min(res.ResetAfter, limits.Length(&t.Of, res.ResetAt.Add(-1)))
	}
	if res.Degraded || a.Refused && res.ResetAfter == 0 {
		a.Early = a.Left // the store may be back, or have room, at any time
	}
	return a
}

// deny sets the results to a denial, because of a merged take that can be granted at a time only.
func (t *taking) deny(at int, when time.Time) {
	t.inVain = true
	t.granted = false
	t.setResults(t.merged, func(m *Take, i int) Result {
		if i == at {
			wait := time.Until(when)
			return Result{Limit: limits.Capacity(&m.Limit), RetryAfter: wait, ResetAfter: wait, ResetAt: when.Round(0)}
		}
		return Result{Allowed: true, Limit: limits.Capacity(&m.Limit)}
	})
}
