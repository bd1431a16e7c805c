package throttr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Reservation is what [RateLimit.Reserve] has taken. To settle it means to replace what was
// reserved by what was really used, with Commit or Cancel. Both may be called more than once and
// from any goroutine, but only the first call does something. A reservation that is never settled
// stays counted, as reserved, until its windows end.
type Reservation struct {
	limiter *RateLimit
	taking  taking
	settled atomic.Bool
}

// Reserve makes all takes or none, like [RateLimit.TakeAll], and remembers their windows, so that
// what turns out not to be needed can be given back:
//
//	rv, err := limiter.Reserve(ctx, throttr.Limit{Key: "tokens", Scale: time.Minute, Limit: 100_000, N: estimate})
//	if err != nil {
//		return err
//	}
//	if !rv.OK() {
//		return tooMany(rv.Results())
//	}
//	defer rv.Cancel(ctx) // does nothing after Commit
//	used, err := answer(ctx, prompt)
//	if err != nil {
//		return err
//	}
//	return rv.Commit(ctx, used)
//
// Errors are those of [RateLimit.Take]. If a fallback has granted the reservation, it is settled
// there. If a [Policy] has, it is counted nowhere, and settling it does nothing.
func (r *RateLimit) Reserve(ctx context.Context, limits ...Limit) (*Reservation, error) {
	return r.reserve(ctx, taking{limits: append([]Limit(nil), limits...)})
}

func (r *RateLimit) reserve(ctx context.Context, t taking) (*Reservation, error) {
	if err := r.takeAll(ctx, &t); err != nil {
		return nil, err
	}
	return &Reservation{limiter: r, taking: t}, nil
}

// OK reports whether the takes were granted.
func (v *Reservation) OK() bool { return v.taking.granted }

// Results returns the results of the takes, as of Reserve. They must not be changed.
func (v *Reservation) Results() []Result { return v.taking.results }

// settleTimeout bounds how long settling takes, if there is no [WithTimeout].
const settleTimeout = 5 * time.Second

// Commit settles the reservation with what was really used: one number for each limit, in their
// order. Without numbers, all that was reserved was used.
//
//   - What was not used is given back to the window that it was taken from. If that window is over,
//     there is nothing to give back. If the backend can't be sure which window is open, nothing is
//     given back, and Commit returns no error: what was reserved stays counted until the window
//     ends. See docs/reservations.md.
//   - What was used beyond the reservation is counted in the window that is open now, even beyond
//     its limit.
//
// Commit works even if ctx has ended, and takes 5 s at most, or what [WithTimeout] says. After an
// error, some of it may have been done. Commit is never tried again, because giving back twice
// would allow more than the limit.
//
// A Commit with another number of arguments than there are limits settles the reservation as
// reserved, and so does one with a number that the backend can't count. Its error says so, and
// matches [ErrConfig] or [ErrRange]. A Cancel that was deferred then gives nothing back.
//
// Commit does nothing, and returns nil, if the reservation was not granted or is settled. The
// wrong number of arguments is an error even then.
func (v *Reservation) Commit(ctx context.Context, actual ...uint64) error {
	mistake := v.check(actual)
	if mistake != nil || len(actual) == 0 {
		return v.settle(ctx, mistake, func(i int) uint64 { return v.taking.limits[i].N })
	}
	return v.settle(ctx, nil, func(i int) uint64 { return actual[i] })
}

// check returns the error of a Commit that is a mistake.
func (v *Reservation) check(actual []uint64) error {
	if len(actual) == 0 {
		return nil
	}
	if len(actual) != len(v.taking.limits) {
		return fmt.Errorf("%w: Commit of %d limits with %d numbers; what is reserved is settled as reserved",
			ErrConfig, len(v.taking.limits), len(actual))
	}
	checker, ok := v.taking.store.(window.Checker)
	if !ok || !v.taking.granted || v.settled.Load() {
		return nil
	}
	for i, l := range v.taking.limits {
		if actual[i] <= l.N {
			continue
		}
		if err := checker.Check(l.Scale, actual[i]); err != nil {
			return callError("commit", l.Key, fmt.Errorf("%w; what is reserved is settled as reserved", err))
		}
	}
	return nil
}

// Cancel settles the reservation with nothing used: see [Reservation.Commit].
func (v *Reservation) Cancel(ctx context.Context) error {
	return v.settle(ctx, nil, func(int) uint64 { return 0 })
}

// settle settles each take with what was used of it. It returns the mistake that was made, if any,
// and otherwise the errors of the backend.
func (v *Reservation) settle(ctx context.Context, mistake error, used func(i int) uint64) error {
	if !v.taking.granted || !v.settled.CompareAndSwap(false, true) || v.taking.backend == nil {
		return mistake
	}
	timeout := v.limiter.failover.timeout
	if timeout <= 0 {
		timeout = settleTimeout
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	errs, took := make([]error, len(v.taking.limits)), make([]time.Duration, len(v.taking.limits))
	// A store that does not respond must not use up the time for the others.
	var others sync.WaitGroup
	one := func(i int) {
		begun := time.Now()
		errs[i] = v.settleOne(limited, i, used(i))
		took[i] = time.Since(begun)
	}
	for i := range errs[1:] {
		if used(i+1) != v.taking.limits[i+1].N {
			others.Go(func() { one(i + 1) })
		}
	}
	one(0)
	others.Wait()
	for i := range errs {
		v.observe(ctx, i, used(i), took[i], cmp.Or(errs[i], mistake))
	}
	return cmp.Or(mistake, errors.Join(errs...))
}

// settleOne settles a take of which some is used: it gives the rest back, or counts the overrun.
func (v *Reservation) settleOne(ctx context.Context, i int, used uint64) error {
	t, l := &v.taking, &v.taking.limits[i]
	switch {
	case used < l.N:
		_, err := t.backend.GiveBack(ctx, l.Key, l.Scale, t.windows[i].ID, l.N-used)
		return err
	case used > l.N:
		_, err := t.store.Inc(ctx, l.Key, l.Scale, used-l.N)
		return err
	}
	return nil
}

// observe reports to the observer that a take was settled. Callers that wait for its window ask the
// backend again.
func (v *Reservation) observe(ctx context.Context, i int, used uint64, took time.Duration, err error) {
	l := &v.taking.limits[i]
	v.limiter.queues.Refresh(l.Key, l.Scale)
	if v.limiter.observer == nil {
		return
	}
	e := v.taking.eventOf(i)
	e.Kind, e.Increment = EventSettled, used
	e.Reserved, e.Result, e.Duration, e.Err = l.N, Result{Limit: l.Limit}, took, err
	v.limiter.observer.Observe(ctx, e)
}
