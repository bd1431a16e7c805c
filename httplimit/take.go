package httplimit

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/throttr-go/throttr"
)

// take counts a request in all limits of a plan if none of them denies it, and in none otherwise.
// The limits of one RateLimit are taken at once. Those of several are taken one RateLimit after the
// other, and what was taken is given back if one denies the request. If one fails, the others still
// apply.
func (m *middleware) take(r *http.Request, plan *Plan, key string, cost uint64) Decision {
	ctx := r.Context()
	d := Decision{Key: key, Allowed: true}
	outcomes := make([]Outcome, len(plan.limits))
	limits := make([]throttr.Limit, 0, len(plan.limits))
	var errs []error
	for _, group := range plan.groups {
		limits = limits[:0]
		for _, i := range group {
			l := &plan.limits[i]
			limits = append(limits, throttr.Limit{
				Key: m.storedKey(*l, key), Scale: l.Window, Limit: l.Limit.Limit, N: cost, Name: m.eventName(l.Name),
			})
		}
		rv, err := cmp.Or(plan.limits[group[0]].Limiter, m.limiter).Reserve(ctx, limits...)
		var tooMuch *throttr.CostError
		if errors.As(err, &tooMuch) {
			d.giveBack(ctx)
			m.denyCost(ctx, &d, plan, cost)
			return d
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d.Allowed = rv.OK(); !d.Allowed {
			d.takeBack(ctx, outcomes, cost)
		}
		d.reservations = append(d.reservations, rv)
		for n, i := range group {
			outcomes[i] = Outcome{plan.limits[i].Name, plan.limits[i].Window, rv.Results()[n]}
		}
		if !d.Allowed {
			break
		}
	}
	d.Outcomes, d.Err = outcomes[:0], errors.Join(errs...)
	for _, o := range outcomes {
		if o.Name != "" { // its limit was asked
			d.add(o)
		}
	}
	return d
}

// takeBack gives back what was taken, and makes the outcomes those of a request that was not
// counted.
func (d *Decision) takeBack(ctx context.Context, outcomes []Outcome, cost uint64) {
	d.giveBack(ctx)
	for i := range outcomes {
		if o := &outcomes[i]; o.Count >= cost {
			o.Count, o.Remaining = o.Count-cost, o.Remaining+cost
		}
	}
}

// denyCost denies a request that costs more than a limit. It is counted in none.
func (m *middleware) denyCost(ctx context.Context, d *Decision, plan *Plan, cost uint64) {
	d.Allowed = false
	for _, l := range plan.limits {
		if o, err := m.peek(ctx, l, d.Key, cost); err == nil || !o.Allowed {
			d.add(o)
		}
	}
}

// peek returns the outcome of a request in a limit, without counting it. If it costs more than the
// limit, it is denied, whatever the error is.
func (m *middleware) peek(ctx context.Context, l planned, key string, cost uint64) (Outcome, error) {
	limit := l.Limit.Limit
	res, err := m.named(l).Peek(ctx, m.storedKey(l, key), l.Window, limit, min(cost, limit))
	if cost > limit {
		res.Limit, res.Allowed, res.RetryAfter = limit, false, l.Window
	}
	return Outcome{Name: l.Name, Window: l.Window, Result: res}, err
}
