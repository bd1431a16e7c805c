package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
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

// decide makes the decision on a request.
func (s *requestState) decide(ctx context.Context, r *Request) {
	d := &s.decision
	d.Err = s.ask(ctx, r)
	d.verdict = s.gate.verdict(ctx, d)
	d.RetryAfter = s.gate.retryAfter(d)
	switch {
	case !d.Allowed:
		d.Done()
		d.Hold = nil
	case d.Hold != nil:
		s.Context = d.Hold.Context()
	}
}

// ask takes the place of a request, and counts it. It returns why some of that could not be done: limits apply also if
// the place, or the plan, could not be decided on.
func (s *requestState) ask(ctx context.Context, r *Request) error {
	if s.gate.allKeyed {
		if err := s.gate.checkKeys(r); err != nil {
			return err
		}
	}
	var unknownPlan, uncounted error
	if r.PlanErr != nil && r.Plan == nil && len(s.gate.plan.limits) == 0 {
		unknownPlan = fmt.Errorf("admission: the plan of a request is not known: %w", r.PlanErr)
	}
	noPlace := s.takePlace(ctx)
	if s.decision.Allowed {
		uncounted = s.count(ctx)
	}
	return errors.Join(unknownPlan, noPlace, uncounted)
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
	hold, ok, err := s.gate.cfg.Places.TryAcquire(ctx, s.gate.StoredKey(s.place.key), *s.place.places, 1)
	d.Hold = hold
	if err != nil || ok {
		return err
	}
	d.Allowed = false
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
		err = s.reserve(ctx)
	}
	s.decision.Outcomes = slices.Grow(s.room.outcomes[:0], len(s.limits))
	for i := range s.limits {
		if l := &s.limits[i]; l.result != nil {
			s.decision.add(l)
		}
	}
	return err
}

// reserve takes what a request costs of its limits, all or none, and keeps what gives it back.
func (s *requestState) reserve(ctx context.Context) error {
	if len(s.limits) == 0 {
		return nil
	}
	var few [3]throttr.Take // are not allocated
	takes := few[:0]
	stored := ""
	for i := range s.limits {
		l := &s.limits[i]
		if i == 0 || l.key != s.limits[i-1].key { // to make one takes a digest
			stored = s.gate.StoredKey(l.key)
		}
		takes = append(takes, l.limit.For(stored, l.cost))
	}
	rv, ok, err := s.gate.limiter.Reserve(ctx, takes...)
	if err != nil {
		return err
	}
	s.decision.Allowed = ok
	results := rv.Results()
	for i := range s.limits {
		l := &s.limits[i]
		l.result = &results[i]
		if isCounted(l.result) {
			l.charge = l.cost
			s.reservation = rv
		}
	}
	return nil
}

// hit makes hits in the limits, up to the first that denies the request. If a call fails, the
// other limits still apply.
func (s *requestState) hit(ctx context.Context) error {
	var failed error
	for i := range s.limits {
		l := &s.limits[i]
		res, err := s.gate.limiter.HitN(ctx, s.gate.StoredKey(l.key), l.limit, l.cost)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		l.result = &res
		if isCounted(l.result) {
			l.charge = l.cost
		}
		if !res.Allowed {
			s.decision.Allowed = false
			break
		}
	}
	return failed
}
