package admission

import (
	"context"

	"github.com/throttr-go/throttr"
)

// reserver is a [throttr.RateLimit] with methods that need no Reservation in most cases.
type reserver interface {
	// AtOnce reports whether Reserve needs no Reservation of most takes of a single limit.
	AtOnce() bool
	// Reserve takes n of each limit for a key, or of none of them. Without a Reservation and an error, to has got
	// the results, and the IDs of windows, for Cancel.
	Reserve(ctx context.Context, key string, limits []throttr.Limit, n uint64, to interface {
		Reserved(i int, id int64, res throttr.Result)
	}) (rv *throttr.Reservation, ok bool, err error)
	Cancel(ctx context.Context, key string, limits []throttr.Limit, n uint64, ids []int64) error
}

// take counts a request in all limits if none of them denies it, and in none otherwise.
func (a *admitted) take(ctx context.Context) {
	a.took(a.decision.gate.reserve.Reserve(ctx, a.key, a.decision.plan.limits, a.n, a))
}

// took sets what has become of the takes of a request. It was Reserved if that is all nil.
func (a *admitted) took(rv *throttr.Reservation, ok bool, err error) {
	d := &a.decision
	if err != nil {
		d.Err = err
		return
	}
	d.Allowed, d.reservation, d.reserved = ok, rv, ok && rv == nil
	for i, res := range rv.Results() {
		d.add(&d.plan.limits[i], res)
	}
}

// Reserved adds the result of a limit, for a reserver.
func (a *admitted) Reserved(i int, id int64, res throttr.Result) {
	a.ids[i] = id
	a.decision.add(&a.decision.plan.limits[i], res)
}

// cancel gives back what the request was counted, if that has been reserved without a Reservation.
func (a *admitted) cancel(ctx context.Context) error {
	if d := &a.decision; a.settled.CompareAndSwap(false, true) {
		return d.gate.reserve.Cancel(ctx, a.key, d.plan.limits, a.n, a.ids[:len(d.plan.limits)])
	}
	return nil
}
