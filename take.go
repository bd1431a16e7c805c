package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/waiting"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// Limit is a take for [RateLimit.TakeAll] and [RateLimit.Reserve]: it adds N to the count of the
// window of Key and Scale, if the count stays within Limit.
type Limit = window.Limit

// CostError is a take of more than the whole limit, which no window can grant. Nothing was asked
// of the backend, and nothing was counted.
// If several takes of one window take more than the largest uint64, N is that.
type CostError struct {
	Key      string
	Scale    time.Duration // the length of the window
	Limit, N uint64
}

// Error names the key, the limit and the cost.
func (e *CostError) Error() string {
	return fmt.Sprintf("throttr: key %.64q: %d can never be taken, as the limit is %d in %v", e.Key, e.N, e.Limit, e.Scale)
}

// checkCost returns a CostError if a take can never be granted.
func checkCost(key string, scale time.Duration, limit, n uint64) error {
	if n <= limit {
		return nil
	}
	return &CostError{Key: key, Scale: scale, Limit: limit, N: n}
}

// Take counts n in key's window if the count stays within limit, and nothing otherwise. So, unlike
// a hit that is denied, a take that is refused costs nobody anything: at 8 of 10, a take of 5 is
// refused, and then a take of 2 is granted.
//
// A refusal is a Result with Allowed false, whose Count and Remaining are those of the window, and
// not an error. A take of 0 opens no window. If n is more than limit, the error is a [*CostError].
// If the backend is no [window.Taker], it matches [errors.ErrUnsupported]; all backends of this
// module are. Other errors are those of [RateLimit.Hit]; if there is one, the take may have been
// counted.
func (r *RateLimit) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (res Result, err error) {
	if n > limit || r.memory == nil {
		return r.take(ctx, Event{Key: key, Scale: scale, Increment: n}, limit)
	}
	count, left, wait, end, granted, err := r.memory.TakeCount(ctx, key, scale, limit, n)
	if err != nil {
		return r.take(ctx, Event{Key: key, Scale: scale, Increment: n, Err: err}, limit)
	}
	res.setTaken(count, limit, left, wait, end, granted)
	return res, nil
}

// take makes the take that e describes, and reports the decision to the observer. If e has an
// error, the backend has failed with it already.
func (r *RateLimit) take(ctx context.Context, e Event, limit uint64) (Result, error) {
	t := taking{limits: []Limit{{Key: e.Key, Scale: e.Scale, Limit: limit, N: e.Increment}}, event: e}
	if err := r.takeAll(ctx, &t); err != nil {
		return Result{}, err
	}
	return t.results[0], nil
}

// setTaken sets r to the decision on a take. After it, the window has the given count; it ends at end,
// which is left from now. If the take was refused, it would be granted after wait.
func (r *Result) setTaken(count, limit uint64, left, wait time.Duration, end time.Time, granted bool) {
	r.Allowed, r.Count, r.Limit, r.ResetAfter, r.ResetAt = granted, count, limit, left, end
	if count < limit {
		r.Remaining = limit - count
	}
	if !granted {
		r.RetryAfter = wait
	}
}

// allAllowed reports whether no result is a denial. After takes that were refused, the windows then do not
// say which of them was.
func allAllowed(results []Result) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return !r.Allowed })
}

// TakeAll makes all takes, or none of them if one is refused: then refused traffic of one limit
// uses up nothing of the others. The results are those of the limits, in their order. If ok is
// false, Allowed says for each limit whether it would have granted its take, and nothing was
// counted. If several limits are on the same key and scale, each applies to the sum of what they
// take.
//
// Without limits, TakeAll returns true and no results, even if ctx has ended. Errors are those of [RateLimit.Take].
func (r *RateLimit) TakeAll(ctx context.Context, limits ...Limit) (ok bool, results []Result, err error) {
	// TakeAll is inlined, so that the results are on the caller's stack if it does not keep them.
	return r.takeEach(ctx, limits, make([]Result, 0, fewLimits))
}

// fewLimits is up to how many limits TakeAll does not allocate for.
const fewLimits = 4

// takeEach is TakeAll. It returns the results in a slice, if that has room for them.
func (r *RateLimit) takeEach(ctx context.Context, limits []Limit, results []Result) (ok bool, _ []Result, err error) {
	if len(limits) == 0 {
		return true, nil, nil
	}
	if r.counting == nil {
		// Not limits itself: the interface call would make every caller allocate it.
		t := taking{limits: slices.Clone(limits)}
		err := r.takeAll(ctx, &t)
		return t.granted, t.results, err
	}
	var few [fewLimits]memory.Taken
	taken := few[:]
	if len(limits) > fewLimits {
		taken, results = make([]memory.Taken, len(limits)), make([]Result, len(limits))
	}
	results = results[:len(limits)]
	granted, err := r.counting.TakeCounts(ctx, limits, taken)
	if !granted {
		if cost := checkCosts(limits); cost != nil {
			return false, nil, cost
		}
	}
	if err != nil {
		t := taking{limits: slices.Clone(limits), event: Event{Err: err}}
		err = r.takeAll(ctx, &t)
		return t.granted, t.results, err
	}
	for i := range limits {
		w, limit := &taken[i], limits[i].Limit
		results[i].setTaken(w.Count, limit, w.Left, w.Left, w.End, granted || fits(limits, i, w.Count))
	}
	if !granted && allAllowed(results) {
		for i := range results {
			results[i].Allowed, results[i].RetryAfter = false, taken[i].Left
		}
	}
	return granted, results, nil
}

func checkCosts(limits []Limit) error {
	for i := range limits {
		l := &limits[i]
		if n, ok := window.Total(limits, i); !ok || n > l.Limit {
			return &CostError{Key: l.Key, Scale: l.Scale, Limit: l.Limit, N: n}
		}
	}
	return nil
}

// fits reports whether a window with a count has room for what limits take from that of limits[i]. The
// limits have passed checkCosts.
func fits(limits []Limit, i int, count uint64) bool {
	n, _ := window.Total(limits, i)
	return count <= limits[i].Limit-n
}

// takeResults returns the results of takes that leave the given windows. What the backend has granted
// decides, and not the windows: if it has refused takes, they are not all allowed.
func takeResults(limits []Limit, windows []Window, granted bool) []Result {
	results := make([]Result, len(limits))
	for i := range limits {
		w, limit := &windows[i], limits[i].Limit
		fits := granted || !w.Refused && fits(limits, i, w.Count)
		results[i].setTaken(w.Count, limit, w.Left, retryAfter(w), w.ExpiresAt, fits)
	}
	if !granted && allAllowed(results) {
		for i := range results {
			results[i].Allowed, results[i].RetryAfter = false, retryAfter(&windows[i])
		}
	}
	return results
}

// Peek returns what [RateLimit.Take] would return now, but takes nothing and opens no window: Count
// and Remaining are without n. If there is no window, ResetAt is zero. It works with every backend,
// and no policy applies. Another caller may take what Peek has seen. Errors are those of Take.
func (r *RateLimit) Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (res Result, err error) {
	if err := checkCost(key, scale, limit, n); err != nil {
		return res, err
	}
	if err := window.CheckScale(scale); err != nil {
		return res, callError("peek", key, err)
	}
	w, err := window.Peek(ctx, r.backend, key, scale, limit, n)
	if err == nil {
		res.setTaken(w.Count, limit, w.Left, retryAfter(&w), w.ExpiresAt, !w.Refused)
	}
	return res, err
}

// retryAfter returns when what was refused would be granted if nobody else hit.
func retryAfter(w *Window) time.Duration {
	if w.RetryAfter > 0 {
		return w.RetryAfter
	}
	return w.Left
}

// taking is a call that takes.
type taking struct {
	limits []Limit
	event  Event // what the events of the limits have in common; Err is set if the backend has failed

	granted bool
	results []Result
	windows []Window     // of the backend that has decided
	backend window.Taker // the backend that has decided; nil if a policy has
	store   Backend      // backend, as a Backend
}

var errNoTaker = fmt.Errorf("throttr: the backend can't take: %w", errors.ErrUnsupported)

// takeAll makes the takes of t, and reports the decisions to the observer.
func (r *RateLimit) takeAll(ctx context.Context, t *taking) error {
	if len(t.limits) == 0 {
		t.granted = true
		return nil
	}
	if err := r.checkTakes(ctx, t); err != nil {
		return err
	}
	begun := time.Now()
	cause, err := r.failover.takeAll(ctx, r.backend, t)
	r.observeTakes(ctx, t, time.Since(begun), cause, err)
	return err
}

// checkTakes returns the error of takes that need no backend. A cost that is too high is a denial.
func (r *RateLimit) checkTakes(ctx context.Context, t *taking) error {
	for i := range t.limits {
		if err := window.CheckScale(t.limits[i].Scale); err != nil {
			return err
		}
	}
	if _, ok := r.backend.(window.Taker); !ok {
		return errNoTaker
	}
	err := checkCosts(t.limits)
	if err == nil || r.observer == nil {
		return err
	}
	for i, l := range t.limits {
		if n, ok := window.Total(t.limits, i); !ok || n > l.Limit {
			e := t.eventOf(i)
			e.Kind, e.Result, e.Err = EventDenied, Result{Limit: l.Limit}, err
			r.observer.Observe(ctx, e)
		}
	}
	return err
}

// eventOf returns what the events of a take have in common.
func (t *taking) eventOf(i int) Event {
	e, l := t.event, &t.limits[i]
	e.Key, e.Scale, e.Increment, e.Name, e.Take = l.Key, l.Scale, l.N, l.Name, true
	return e
}

// observeTakes reports takes: if they are granted, each of them, and otherwise those that were
// refused or have failed. The cause is the error of the backend, whatever the decision is.
func (r *RateLimit) observeTakes(ctx context.Context, t *taking, took time.Duration, cause, err error) {
	if r.observer == nil || errors.Is(err, errors.ErrUnsupported) {
		return
	}
	for i, l := range t.limits {
		e := t.eventOf(i)
		e.Duration, e.Err = took, cause
		var late *DeadlineError
		switch {
		case errors.As(err, &late):
			wait := time.Until(late.At)
			e.Kind, e.Result, e.Err = EventDenied, Result{Limit: l.Limit, RetryAfter: wait, ResetAfter: wait, ResetAt: late.At}, err
		case err != nil:
			e.Kind, e.Result, e.Err = EventFailed, Result{Limit: l.Limit}, err
		case t.granted:
			e.Kind, e.Result = EventAllowed, t.results[i]
		case t.results[i].Allowed:
			continue // not counted, because another limit has refused
		default:
			e.Kind, e.Result = EventDenied, t.results[i]
		}
		r.observer.Observe(ctx, e)
	}
}

// precision returns how much later than the end of a window a backend may say that it ends, but for the
// time that a call takes. See [ServerBackend.Precision].
func precision(b Backend, scale time.Duration) time.Duration {
	if p, ok := b.(interface {
		Precision(scale time.Duration) time.Duration
	}); ok {
		return p.Precision(scale)
	}
	return 0
}

// DeadlineError is a wait that would have exceeded the deadline of its context. Nothing was taken.
// It matches [context.DeadlineExceeded].
type DeadlineError struct {
	Key   string
	Scale time.Duration // the length of the window
	At    time.Time     // when the take could be granted at the earliest
}

// Error names the key and when its take could be granted.
func (e *DeadlineError) Error() string {
	at := e.At.Round(0) // without the reading of the monotonic clock
	return fmt.Sprintf("throttr: key %.64q: the wait until %v at least would exceed the deadline of the context", e.Key, at)
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
// the others follow in the order of their calls. Other RateLimits and processes have queues of
// their own.
//
// While the first caller waits for the end of a window, it asks every tenth of the scale, but at
// least every second, because others may give back or reset the window. It also asks when a
// reservation of this RateLimit is settled.
//
// Wait fails at once, and takes nothing, in these cases:
//
//   - n is more than limit: a [*CostError]
//   - the callers before it take so much that its turn comes after ctx's deadline: a
//     [*DeadlineError]
//   - too many wait already, see [WithMaxWaiters]: [ErrOverloaded]
//
// Other errors are those of ctx and of Take. A [Policy] that allows hits allows the take, and one
// that denies them makes Wait continue, until the backend works again.
func (r *RateLimit) Wait(ctx context.Context, key string, scale time.Duration, limit, n uint64) (Result, error) {
	return r.wait(ctx, Event{Key: key, Scale: scale, Increment: n, Waited: true}, limit)
}

// wait waits for the take that e describes, and reports the decision to the observer.
func (r *RateLimit) wait(ctx context.Context, e Event, limit uint64) (res Result, err error) {
	t := taking{limits: []Limit{{Key: e.Key, Scale: e.Scale, Limit: limit, N: e.Increment}}, event: e}
	if err := r.checkTakes(ctx, &t); err != nil {
		return res, err
	}
	begun := time.Now()
	var cause error
	turn := waiting.Turn{Key: e.Key, Scale: e.Scale, Limit: limit, N: e.Increment}
	err = r.queues.Wait(ctx, turn, func(ctx context.Context) (a waiting.Answer, err error) {
		asked := time.Now()
		if cause, err = r.failover.takeAll(ctx, r.backend, &t); err != nil {
			return a, err
		}
		res := &t.results[0]
		rolling := window.AlgorithmOf(t.store).Rolling()
		a = waiting.Answer{Granted: t.granted, Count: res.Count, Left: res.RetryAfter, Rolling: rolling}
		if a.Granted { // RetryAfter is 0
			a.Left = min(res.ResetAfter, e.Scale)
		}
		a.Early = a.Left // the backend may work again at any time
		if t.store != nil {
			a.Early = precision(t.store, e.Scale) + time.Since(asked)
		}
		return a, nil
	})
	var late *waiting.LateError
	switch {
	case errors.As(err, &late):
		err = &DeadlineError{Key: e.Key, Scale: e.Scale, At: late.At}
	case errors.Is(err, waiting.ErrFull):
		err = fmt.Errorf("%w: %d callers wait for key %.64q already", ErrOverloaded, r.maxWaiters, e.Key)
	case err != nil && err == ctx.Err(): // ctx has ended in the queue
		err = fmt.Errorf("throttr: wait %.64q: %w", e.Key, err)
	}
	r.observeTakes(ctx, &t, time.Since(begun), cause, err)
	if err != nil {
		return Result{}, err
	}
	return t.results[0], nil
}
