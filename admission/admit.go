package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
)

// Admit takes a place for a request, counts it in all limits that apply, or in none of them if one denies it, and
// returns the decision. The caller calls [Decision.Done] once the request has been served, or will not be.
func (g *Gate) Admit(ctx context.Context, r Request) *Decision {
	s := g.begin(ctx, &r)
	decided := false
	defer func() {
		if !decided { // a panic, such as one of an observer: the caller has nothing to call Done of
			s.decision.Done()
		}
	}()
	s.decide(ctx, &r)
	decided = true
	return &s.decision
}

// decide makes the decision on a request. Limits apply also if the place, or the plan, could not be decided on.
func (s *requestState) decide(ctx context.Context, r *Request) {
	d := &s.decision
	if s.gate.allKeyed {
		if err := s.gate.checkKeys(r); err != nil {
			d.Err = err
			d.keyless = true
			d.RetryAfter = s.gate.retryAfter(d)
			return
		}
	}
	var unknownPlan, uncounted error
	if r.PlanErr != nil && r.Plan == nil && len(s.gate.plan.limits) == 0 {
		unknownPlan = fmt.Errorf("admission: the plan of a request is not known: %w", r.PlanErr)
	}
	noPlace := s.takePlace(ctx)
	if d.Allowed {
		uncounted = s.count(ctx)
	}
	d.Err = errors.Join(unknownPlan, noPlace, uncounted)
	d.canceled = d.Err != nil && outage.Ended(ctx)
	d.RetryAfter = s.gate.retryAfter(d)
	switch {
	case !d.Allowed:
		d.Done()
		d.Hold = nil
	case d.Hold != nil:
		s.Context = d.Hold.Context()
	}
}

// takePlace takes the place of a request, or denies it. It returns why that could not be decided.
func (s *requestState) takePlace(ctx context.Context) error {
	if s.place == nil {
		return nil
	}
	if s.gate.cfg.Places == nil {
		return fmt.Errorf("admission: a plan has a limit in flight, and there is no Config.Places: %w",
			throttr.ErrUnsupported)
	}
	d := &s.decision
	hold, ok, err := s.gate.cfg.Places.TryAcquire(ctx, s.place.stored, *s.place.places, 1)
	d.Hold = hold
	if err != nil || ok {
		return err
	}
	d.Allowed = false
	d.noPlace = true
	d.Strictest = s.place.inUse(s.place.limit.Max, 0)
	return nil
}

// count counts a request in its limits. It returns why it could not be counted in some.
func (s *requestState) count(ctx context.Context) (err error) {
	for i := range s.limits {
		l := &s.limits[i]
		if err := limits.CheckNumber("Cost", l.cost); err != nil {
			return fmt.Errorf("admission: limit %q: %w", l.limit.Name, err)
		}
	}
	if s.gate.cfg.CountRefusals {
		err = s.hit(ctx)
	} else {
		err = s.take(ctx)
	}
	d := &s.decision
	d.Outcomes = slices.Grow(s.one.outcome[:0], len(s.limits))
	for i := range s.limits {
		if l := &s.limits[i]; l.result != nil {
			d.add(l)
		}
	}
	return err
}

// take takes what a request costs of its limits, all or none, unless one denies it in which it costs nothing. That a
// look-up has found the store away is no failure if what is taken can be decided, by a fallback or a policy.
func (s *requestState) take(ctx context.Context) error {
	failed, away := s.lookUp(ctx)
	var few [4]throttr.Take
	takes := few[:0]
	for i := range s.limits {
		if l := &s.limits[i]; l.cost > 0 {
			takes = append(takes, l.limit.For(l.stored, l.cost))
		}
	}
	if !s.decision.Allowed || len(takes) == 0 {
		return errors.Join(failed, away)
	}
	rv, ok, err := s.gate.limiter.Reserve(ctx, takes...)
	if err != nil {
		return errors.Join(failed, away, err)
	}
	s.decision.Allowed = ok
	s.reservation = rv
	results := rv.Results()
	for i := range s.limits {
		if l := &s.limits[i]; l.cost > 0 {
			l.charge = l.cost
			l.result = &results[0]
			results = results[1:]
		}
	}
	return failed
}

// lookUp looks up the limits in which a request costs nothing, and whether one of them denies it. If the store is away,
// there is one look-up, so that nobody waits for a time limit for each; away is its error.
func (s *requestState) lookUp(ctx context.Context) (failed, away error) {
	for i := range s.limits {
		l := &s.limits[i]
		if l.cost > 0 || away != nil {
			continue
		}
		res, err := s.gate.limiter.Peek(ctx, l.stored, l.limit, 0)
		switch {
		case outage.IsAway(err):
			away = err
		case err != nil:
			failed = errors.Join(failed, err)
		default:
			l.result = &res
			s.decision.Allowed = s.decision.Allowed && res.Allowed
		}
	}
	return failed, away
}

// hit makes hits in the limits, up to the first that denies the request. If a call fails, the
// other limits still apply.
func (s *requestState) hit(ctx context.Context) error {
	var failed error
	for i := range s.limits {
		l := &s.limits[i]
		res, err := s.gate.limiter.HitN(ctx, l.stored, l.limit, l.cost)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		l.charge = l.cost
		l.result = &res
		if !res.Allowed {
			s.decision.Allowed = false
			break
		}
	}
	return failed
}
