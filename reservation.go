package throttr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
)

// Reservation is takes whose real numbers become known later. Settle it once, with Commit or Cancel: of
// several calls, the first one counts. A nil Reservation, and one that was denied, can be settled: nothing
// happens.
type Reservation struct {
	limiter *RateLimit
	settled atomic.Bool // or nothing was granted
	call    verb        // reserve or wait
	takes   []Take
	results []Result
	counts  []counted
	index   []int // of takes in counts; nil: each has its own

	room struct { // for what one take needs: a reservation is one allocation then
		takes   [1]Take
		results [1]Result
		counts  [1]counted
	}
}

// counted is what a backend has counted of takes of one count.
type counted struct {
	by   Backend // nil: none was asked, or a policy has decided
	take *Take   // as the backend has made it
	id   int64   // of the window
}

// reserve makes takes, all or none, at once or, if the call is wait, when it is their turn.
func (r *RateLimit) reserve(ctx context.Context, call verb, takes []Take) (rv *Reservation, ok bool, err error) {
	rv = &Reservation{limiter: r, call: call}
	t := takings.Get().(*taking)
	t.waits = call == wait
	t.takes = rv.room.takes[:0]
	t.results = rv.room.results[:0]
	t.begin(call.String(), takes)
	if err := r.decideAll(ctx, t); err != nil {
		return nil, false, err
	}
	rv.takes = t.takes
	rv.results = t.results
	rv.counts = t.appendCounts(rv.room.counts[:0])
	rv.index = t.index
	ok = t.granted
	rv.settled.Store(!ok)
	t.end()
	return rv, ok, nil
}

// appendCounts appends what was counted of each of the merged takes, and then of the shadow takes.
func (t *taking) appendCounts(counts []counted) []counted {
	counts = slices.Grow(counts, len(t.merged)+len(t.shadows))
	for i := range t.merged {
		counts = append(counts, t.counted(i))
	}
	for i := range t.shadows {
		counts = append(counts, t.shadows[i].counted(0))
	}
	return counts
}

// counted returns what was counted of a merged take.
func (t *taking) counted(at int) counted {
	d := &t.decided
	if d.by == nil || !t.granted {
		return counted{}
	}
	return counted{d.by, &d.takes[at], d.windows[at].ID}
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
	return r.reserve(ctx, reserve, takes)
}

// Results returns the results of the takes, in their order.
func (v *Reservation) Results() []Result {
	if v == nil {
		return nil
	}
	return v.results
}

// Commit settles the reservation with what was really used of each take, in their order. What was not used
// is given back to the windows that it was taken from, if they are still open. What was used beyond the
// take is counted, whatever the limits say. Without numbers, all that was taken was used.
//
// A number of arguments other than that of the takes is [ErrConfig], and one over 2⁶³-1 is [ErrRange]: then
// the reservation is settled as if all that was taken had been used. Other errors are those of the backend:
// then it is unknown what was given back. Commit is not bound by the end of ctx, but by [WithTimeout].
func (v *Reservation) Commit(ctx context.Context, actual ...uint64) error {
	if v == nil || !v.settled.CompareAndSwap(false, true) {
		return nil
	}
	var mistake error
	if len(actual) > 0 && len(actual) != len(v.takes) {
		mistake = fmt.Errorf("%w: Commit of %d takes with %d numbers: settled as reserved", ErrConfig, len(v.takes),
			len(actual))
	}
	for _, n := range actual {
		if err := limits.CheckNumber("actual", n); err != nil && mistake == nil {
			mistake = fmt.Errorf("%w: settled as reserved", err)
		}
	}
	if len(actual) == 0 || mistake != nil {
		actual = make([]uint64, 0, len(v.takes))
		for i := range v.takes {
			actual = append(actual, v.takes[i].N)
		}
	}
	return errors.Join(mistake, v.settle(ctx, actual))
}

// Cancel settles the reservation: nothing was used. Errors are those of [Reservation.Commit].
func (v *Reservation) Cancel(ctx context.Context) error {
	if v == nil || !v.settled.CompareAndSwap(false, true) {
		return nil
	}
	return v.settle(ctx, make([]uint64, len(v.takes)))
}

// settle gives back what was not used of each count, and charges what was used beyond. Stores may differ, and
// one that hangs must not delay the others: all counts are settled at one time.
func (v *Reservation) settle(ctx context.Context, used []uint64) error {
	ctx = context.WithoutCancel(ctx)
	begun := time.Now()
	errs := make([]error, len(v.counts))
	inParallel(len(errs), func(i int) {
		errs[i] = v.counts[i].settle(ctx, v.usedOf(i, used))
	})
	for i := range v.takes {
		x := &v.takes[i]
		e := Event{Kind: EventSettled, Call: v.call.String(), Key: x.Key, Limit: x.Limit, N: used[i], Reserved: x.N,
			Result: Result{Limit: limits.Capacity(&x.Limit)}, Duration: time.Since(begun)}
		if at := indexOf(v.index, i); at >= 0 {
			e.Err = errs[at]
			if x.Limit.Shadow {
				errs[at] = nil // is for the observer alone
			}
		}
		v.limiter.queues.Refresh(countOf(x.Key, &x.Limit))
		v.limiter.observer.tell(ctx, e)
	}
	return errors.Join(errs...)
}

// usedOf returns what was used of the takes of a count.
func (v *Reservation) usedOf(at int, used []uint64) (n uint64) {
	for i := range used {
		if indexOf(v.index, i) == at {
			n = min(n+used[i], Unlimited)
		}
	}
	return n
}

// settle settles what was counted, of which n was used.
func (c *counted) settle(ctx context.Context, n uint64) error {
	if c.by == nil || n == c.take.N {
		return nil
	}
	var err error
	if n > c.take.N {
		_, err = c.by.Charge(ctx, c.take.Key, c.take.Limit, n-c.take.N)
	} else {
		_, err = c.by.GiveBack(ctx, c.take.Key, c.take.Limit, c.take.N-n, c.id)
	}
	return err
}
