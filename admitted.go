package throttr

import (
	"cmp"
	"context"

	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/internal/inside"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

func init() { inside.Add(func(r *RateLimit) any { return (*admitter)(r) }) }

// admitter is a RateLimit as package admission uses it. That makes reservations for all requests, and cancels
// few of them. So most have no Reservation until it is canceled: it is then made of the IDs of windows.
type admitter RateLimit

// reserved gets the results of takes, and the IDs of their windows. Admitter's methods have its definition, as
// package admission can't name it.
type reserved = interface {
	Reserved(i int, id int64, res Result)
}

// AtOnce reports whether Reserve needs no Reservation of most takes of a single limit.
func (a *admitter) AtOnce() bool { return a.fast != nil }

// Reserve is [RateLimit.Reserve] of n of each limit for a key. Without a Reservation and an error, it has passed
// the results to to. The limits are those of an admission.Plan: valid, if only the RateLimit's algorithm is.
func (a *admitter) Reserve(ctx context.Context, key string, limits []Limit, n uint64, to reserved) (rv *Reservation, ok bool, err error) {
	r := (*RateLimit)(a)
	if len(limits) == 1 {
		if ok, decided := r.reserveOne(ctx, key, &limits[0], n, to); decided {
			return nil, ok, nil
		}
	} else if r.decidesFew(len(limits)) {
		var decided bool
		if ok, decided, err = r.reserveFew(ctx, key, limits, n, to); decided {
			return nil, ok, nil
		}
	}
	rv = &Reservation{limiter: r, taking: taking{call: "reserve", failed: err}}
	rv.taking.makeTakes(len(limits))
	for i := range limits {
		rv.taking.takes[i] = limits[i].For(key, n)
	}
	return r.reserve(ctx, rv)
}

// reserveOne makes a take, if there is a decision at once.
func (r *RateLimit) reserveOne(ctx context.Context, key string, l *Limit, n uint64, to reserved) (granted, decided bool) {
	by, holds := r.algorithmOf(l), cmp.Or(l.Burst, l.Max)
	if r.fast == nil || l.Shadow || l.Max-1 >= Unlimited-1 || n-1 >= holds || limits.HasCalendar(l) || l.Burst != 0 && by != TokenBucket {
		return false, false
	}
	count, left, retry, end, id, granted, ok := r.fast.Decide(ctx, key, by, l.Max, l.Scale, n, fastpath.Take, l.Burst, l.Name)
	if !ok {
		return false, false
	}
	var res Result
	res.set(holds, count, left, cmp.Or(retry, left, l.Scale), end, granted)
	to.Reserved(0, id, res)
	return granted, true
}

// reserveFew makes takes, if none of them needs more than a call of the backend, whose error it returns.
func (r *RateLimit) reserveFew(ctx context.Context, key string, limits []Limit, n uint64, to reserved) (granted, decided bool, err error) {
	few := fewPool.Get().(*takeFew)
	for i := range limits {
		t := &few.takes[i]
		t.Key, t.Limit, t.N = key, limits[i], n
		if !few.prepare(r, i) {
			return false, false, nil
		}
	}
	if granted, err = few.take(ctx, r, len(limits)); err != nil {
		return false, false, err
	}
	for i := range limits {
		var res Result
		few.result(i, &res)
		to.Reserved(i, few.windows[i].ID, res)
	}
	fewPool.Put(few)
	return granted, true, nil
}

// Cancel gives back what Reserve has taken without a Reservation.
func (a *admitter) Cancel(ctx context.Context, key string, limits []Limit, n uint64, ids []int64) error {
	r := (*RateLimit)(a)
	rv := &Reservation{limiter: r, taking: taking{call: "reserve", granted: true, store: r.first}}
	t := &rv.taking
	t.makeTakes(len(limits))
	for i := range limits {
		t.takes[i] = r.resolved(limits[i]).For(key, n)
	}
	t.merged, t.index = t.takes, inOrder[:len(limits)]
	t.windows = make([]window.Window, len(limits))
	for i := range t.windows {
		t.windows[i].ID = ids[i]
	}
	return rv.Cancel(ctx)
}
