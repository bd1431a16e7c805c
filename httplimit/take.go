package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/throttr-go/throttr"
)

// take counts a request in all limits of a plan if none of them denies it, and in none otherwise.
func (m *middleware) take(r *http.Request, plan *Plan, key string, cost uint64) Decision {
	if cost == 0 {
		return m.each(r, plan, key, m.limiter.Peek, 0)
	}
	d := Decision{Key: key, Allowed: true, Outcomes: make([]Outcome, 0, len(plan.limits))}
	takes := make([]throttr.Take, len(plan.limits))
	for i, l := range plan.limits {
		takes[i] = l.For(m.storedKey(key), cost)
	}
	rv, ok, err := m.limiter.Reserve(r.Context(), takes...)
	if err != nil {
		d.Err = err
		return d
	}
	d.Allowed, d.reservation = ok, rv
	for i, res := range rv.Results() {
		d.add(plan.limits[i], res)
	}
	return d
}

// each calls Peek or HitN in the limits of a plan, up to the first that denies the request. If a call
// fails, the other limits still apply.
func (m *middleware) each(r *http.Request, plan *Plan, key string,
	call func(context.Context, string, throttr.Limit, uint64) (throttr.Result, error), n uint64,
) Decision {
	d := Decision{Key: key, Allowed: true, Outcomes: make([]Outcome, 0, len(plan.limits))}
	var errs []error
	for _, l := range plan.limits {
		res, err := call(r.Context(), m.storedKey(key), l, n)
		if err != nil {
			errs = append(errs, err)
			if r.Context().Err() != nil {
				break
			}
			continue
		}
		d.add(l, res)
		if d.Allowed = res.Allowed; !d.Allowed {
			break
		}
	}
	d.Err = errors.Join(errs...)
	return d
}
