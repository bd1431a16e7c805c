package throttr

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Reservation is takes whose real numbers become known later. Settle it once, with Commit or Cancel: of
// several calls, the first one counts. A nil Reservation, and one that was denied, can be settled: nothing
// happens.
type Reservation struct {
	limiter *RateLimit
	taking  taking
	settled atomic.Bool

	room struct { // for what one take needs: a reservation is one allocation then
		takes   [1]Take
		results [1]Result
		index   [1]int
		windows [1]window.Window
	}
}

// reservation returns a Reservation of takes that are still to be made.
func (r *RateLimit) reservation(call string, takes []Take) *Reservation {
	rv := &Reservation{limiter: r}
	rv.taking.takes = rv.room.takes[:0]
	rv.taking.results = rv.room.results[:0]
	rv.taking.index = rv.room.index[:0]
	rv.taking.decided.windows = rv.room.windows[:0]
	rv.taking.begin(call, takes)
	return rv
}

// Reserve makes all takes, or none of them, like [RateLimit.TakeAll]. If ok, the caller settles the
// Reservation: it commits what was really used, or cancels.
//
//	rv, ok, err := limiter.Reserve(ctx, tokens.For(customer, estimate))
//	if err != nil || !ok {
//		…
//	}
//	defer rv.Cancel(ctx)	// does nothing after Commit
//	used := …
//	err = rv.Commit(ctx, used)
//
// A process that ends before it settles a reservation leaves it counted until the window ends.
func (r *RateLimit) Reserve(ctx context.Context, takes ...Take) (rv *Reservation, ok bool, err error) {
	rv = r.reservation("reserve", takes)
	if err := r.decideAll(ctx, &rv.taking); err != nil {
		return nil, false, err
	}
	return rv, rv.taking.granted, nil
}

// Results returns the results of the takes, in their order.
func (v *Reservation) Results() []Result {
	if v == nil {
		return nil
	}
	return v.taking.results
}

// Commit settles the reservation with what was really used of each take, in their order. What was not used
// is given back to the windows that it was taken from, if they are still open. What was used beyond the
// take is counted, whatever the limits say. Without numbers, all that was taken was used.
//
// A number of arguments other than that of the takes is [ErrConfig], and one over 2⁶³-1 is [ErrRange]: then
// the reservation is settled as if all that was taken had been used. Other errors are those of the backend:
// then it is unknown what was given back. Commit is not bound by the end of ctx, but by [WithTimeout].
func (v *Reservation) Commit(ctx context.Context, actual ...uint64) error {
	if v == nil || !v.taking.granted || !v.settled.CompareAndSwap(false, true) {
		return nil
	}
	var mistake error
	takes := v.taking.takes
	if len(actual) > 0 && len(actual) != len(takes) {
		mistake = fmt.Errorf("%w: Commit of %d takes with %d numbers: settled as reserved", ErrConfig, len(takes),
			len(actual))
	}
	for _, n := range actual {
		if err := limits.CheckNumber("actual", n); err != nil && mistake == nil {
			mistake = fmt.Errorf("%w: settled as reserved", err)
		}
	}
	if len(actual) == 0 || mistake != nil {
		actual = make([]uint64, 0, len(takes))
		for i := range takes {
			actual = append(actual, takes[i].N)
		}
	}
	return errors.Join(mistake, v.settle(ctx, actual))
}

// Cancel settles the reservation: nothing was used. Errors are those of [Reservation.Commit].
func (v *Reservation) Cancel(ctx context.Context) error {
	if v == nil || !v.taking.granted || !v.settled.CompareAndSwap(false, true) {
		return nil
	}
	return v.settle(ctx, make([]uint64, len(v.taking.takes)))
}

// settle gives back what was not used of each count, and charges what was used beyond. Stores may differ, and
// one that hangs must not delay the others: all counts are settled at one time.
func (v *Reservation) settle(ctx context.Context, used []uint64) error {
	t := &v.taking
	ctx = context.WithoutCancel(ctx)
	begun := time.Now()
	errs := make([]error, len(t.merged)+len(t.shadows))
	inParallel(len(errs), func(i int) {
		n := t.usedOf(i, used)
		if i < len(t.merged) {
			errs[i] = t.settleCount(ctx, i, n)
		} else {
			errs[i] = t.shadows[i-len(t.merged)].settleCount(ctx, 0, n)
		}
	})
	for i := range t.takes {
		x := &t.takes[i]
		e := Event{Kind: EventSettled, Call: t.call, Key: x.Key, Limit: x.Limit, N: used[i], Reserved: x.N,
			Result: Result{Limit: limits.Capacity(&x.Limit)}, Duration: time.Since(begun)}
		if at := t.index[i]; at >= 0 {
			e.Err = errs[at]
		}
		v.limiter.queues.Refresh(countOf(x.Key, &x.Limit))
		v.limiter.observer.tell(ctx, e)
	}
	return errors.Join(errs[:len(t.merged)]...)
}

// usedOf returns what was used of a merged take, or of a shadow one.
func (t *taking) usedOf(at int, used []uint64) (n uint64) {
	for i, of := range t.index {
		if of == at {
			n = min(n+used[i], Unlimited)
		}
	}
	return n
}

// settleCount settles a merged take of which n was used. What a shadow limit would have denied is not
// counted, so nothing is settled.
func (t *taking) settleCount(ctx context.Context, at int, n uint64) error {
	d := &t.decided
	if d.by == nil || !t.granted || n == d.takes[at].N {
		return nil
	}
	m := &d.takes[at]
	var err error
	if n > m.N {
		_, err = d.by.Charge(ctx, m.Key, m.Limit, n-m.N)
	} else {
		_, err = d.by.GiveBack(ctx, m.Key, m.Limit, m.N-n, d.windows[at].ID)
	}
	return err
}
