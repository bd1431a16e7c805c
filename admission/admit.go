package admission

import (
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
)

// Admit takes a place for a request, counts it in all limits that apply, or in none of them if one denies it, and
// returns the decision. The caller calls [Decision.Done] once the request has been served, or will not be.
func (g *Gate) Admit(ctx context.Context, r Request) *Decision {
	a := g.begin(ctx, &r)
	d := &a.decision
	if r.PlanErr != nil {
		ctx = context.WithValue(ctx, planErrKey{}, r.PlanErr)
	}
	if d.Shadow {
		ctx = context.WithValue(ctx, shadowKey{}, true)
	}
	decided := false
	defer func() {
		if !decided { // a panic, such as one of an observer: the caller has nothing to call Done of
			d.Done()
		}
	}()
	if r.PlanErr != nil && r.Plan == nil && len(g.plan.limits) == 0 {
		d.Err = fmt.Errorf("admission: the plan of a request is not known: %w", r.PlanErr)
	}
	failed := a.enter(ctx)
	if d.Allowed && len(a.limits) > 0 { // also if it could not be decided on a place
		d.Err = a.count(ctx)
	}
	switch {
	case !d.Allowed:
		d.Done()
		d.Hold = nil
	case failed != nil:
		d.Err = errors.Join(failed, d.Err)
	case d.Hold != nil && !d.Shadow:
		a.Context = d.Hold.Context()
	}
	d.canceled = d.Err != nil && outage.Ended(ctx)
	d.RetryAfter = g.retryAfter(d)
	decided = true
	return d
}

// enter takes the place of a request, or denies it. It returns why that could not be decided.
func (a *admitted) enter(ctx context.Context) error {
	if a.place == nil {
		return nil
	}
	if a.gate.cfg.Places == nil {
		return fmt.Errorf("admission: a plan has a limit in flight, and there is no Config.Places: %w",
			throttr.ErrUnsupported)
	}
	d := &a.decision
	hold, ok, err := a.gate.cfg.Places.TryAcquire(ctx, a.place.as, *a.place.places, 1)
	d.Hold = hold
	if err != nil || ok {
		return err
	}
	d.Allowed = false
	d.noPlace = true
	d.Strictest = a.place.inUse(a.place.limit.Max, 0)
	return nil
}

// count counts a request in its limits. It returns why it could not be counted in some.
func (a *admitted) count(ctx context.Context) (err error) {
	for i := range a.limits {
		c := &a.limits[i]
		if err := limits.CheckNumber("Cost", c.n); err != nil {
			return fmt.Errorf("admission: limit %q: %w", c.limit.Name, err)
		}
	}
	if a.gate.cfg.CountRefusals {
		err = a.hit(ctx)
	} else {
		err = a.take(ctx)
	}
	d := &a.decision
	d.Outcomes = make([]Outcome, 0, len(a.limits))
	for i := range a.limits {
		if c := &a.limits[i]; c.result != nil {
			d.add(c)
		}
	}
	return err
}

// take takes what a request costs of its limits, all or none. What costs nothing in a limit is looked up before: if
// the store is away, there is one look-up, so that nobody waits for a time limit for each. It is no failure if what is
// taken can be decided in spite of that, by a fallback or a policy.
func (a *admitted) take(ctx context.Context) error {
	d := &a.decision
	var few [4]throttr.Take
	takes := few[:0]
	var failed, away error // the second one if the store is away
	for i := range a.limits {
		c := &a.limits[i]
		if c.n > 0 {
			takes = append(takes, c.limit.For(c.as, c.n))
			continue
		}
		if away != nil {
			continue
		}
		res, err := a.gate.limiter.Peek(ctx, c.as, c.limit, 0)
		switch {
		case outage.IsAway(err):
			away = err
		case err != nil:
			failed = errors.Join(failed, err)
		default:
			c.result = &res
			d.Allowed = d.Allowed && res.Allowed
		}
	}
	if !d.Allowed || len(takes) == 0 {
		return errors.Join(failed, away)
	}
	rv, ok, err := a.gate.limiter.Reserve(ctx, takes...)
	if err != nil {
		return errors.Join(failed, away, err)
	}
	d.Allowed = ok
	a.reservation = rv
	results := rv.Results()
	for i := range a.limits {
		if c := &a.limits[i]; c.n > 0 {
			c.charged = c.n
			c.result = &results[0]
			results = results[1:]
		}
	}
	return failed
}

// hit makes hits in the limits, up to the first that denies the request. If a call fails, the
// other limits still apply.
func (a *admitted) hit(ctx context.Context) error {
	var errs []error
	for i := range a.limits {
		c := &a.limits[i]
		res, err := a.gate.limiter.HitN(ctx, c.as, c.limit, c.n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.charged = c.n
		c.result = &res
		if !res.Allowed {
			a.decision.Allowed = false
			break
		}
	}
	return errors.Join(errs...)
}
