package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/outage"
)

// Request is what a Gate decides on. The zero Request comes from nobody known, counts 1, and has the limits of the
// Config.
type Request struct {
	// Key is that of all limits that are not in Keys. Without a text, the request counts by its address, or, with
	// Config.SkipEmptyKey, in no such limit.
	Key Key
	// Keys are the keys of limits by their names, that on requests in flight included. One without a text leaves
	// its limit out.
	Keys map[string]Key
	// Addr is the address that the request comes from, as [Addr] or [Addrs.Key] returns it. It is stored as it is.
	// Requests of one whose address is not known count together.
	Addr string
	// Plan has the limits of the request. Nil: those of the Config.
	Plan *Plan
	// PlanErr says why the plan is not known. Without another one, the limits of the Config apply, and if there are
	// none, the request could not be counted. Observers get a context of which [PlanErr] is the error.
	PlanErr error
	// Cost returns what the request counts in a limit. What costs 0 is not counted there, but it is denied if the limit
	// has been exceeded. More than 2⁶³-1 is a mistake in the program, such as a length of -1 that was converted: the
	// error matches [throttr.ErrRange], and the request is Misconfigured. Nil: 1.
	Cost func(throttr.Limit) uint64
}

type (
	shadowKey  struct{}
	planErrKey struct{}
	contextKey struct{}
)

// InShadow reports whether an event, in whose context an observer was called, is of a request that is served
// whatever is decided: see Config.Shadow.
func InShadow(ctx context.Context) bool { return ctx.Value(shadowKey{}) != nil }

// PlanErr returns the Request.PlanErr of an event, in whose context an observer was called.
func PlanErr(ctx context.Context) error {
	err, _ := ctx.Value(planErrKey{}).(error)
	return err
}

// admitted is what a Gate remembers of a request. It is a context with the decision.
type admitted struct {
	context.Context // that of Admit, or of the place
	gate            *Gate
	decision        Decision
	limits          []counted // those that apply
	place           *counted  // nil: the request needs none
	settling        settling
}

// counted is a limit in which a request counts.
type counted struct {
	*planned
	key   Key
	plain bool   // the key is stored as it is
	as    string // the stored key
	n     uint64 // the cost

	reserved bool   // n is in the reservation of the request
	charged  uint64 // what is counted of the request now: 0 of a call that has failed, and of what was given back
	actual   uint64 // what Done settles of a reservation
}

// outcome returns the outcome of a result.
func (c *counted) outcome(res throttr.Result) Outcome {
	o := Outcome{
		Name: c.limit.Name, Key: c.key.Text, Scale: c.limit.Scale, Result: res,
		of: c.planned, window: c.window, plain: c.plain,
	}
	if c.limit.Calendar != 0 {
		within := time.Now()
		o.window = limits.Left(&c.limit, within)
		if !res.ResetAt.IsZero() {
			within = res.ResetAt.Add(-1)
		}
		o.Scale = limits.Length(&c.limit, within)
	}
	return o
}

// noPlaceFor is the RetryAfter of a request for which there is no place. When there will be one is not known.
const noPlaceFor = time.Second

// inUse returns the outcome of a limit on requests in flight, with so many places in use, and free.
func (c *counted) inUse(used, free uint64) Outcome {
	res := throttr.Result{Allowed: free > 0, Limit: c.limit.Max, Count: used, Remaining: free}
	switch {
	case c.limit.Max == 0:
		res.RetryAfter = throttr.Never
	case free == 0:
		res.RetryAfter = noPlaceFor
	}
	return c.outcome(res)
}

// exempt reports whether no limit applies to the request.
func (a *admitted) exempt() bool { return len(a.limits) == 0 && a.place == nil }

// Value returns the decision, or a value of the parent. What observers are told of the request is not for the handler.
func (a *admitted) Value(key any) any {
	switch key {
	case contextKey{}:
		return &a.decision
	case planErrKey{}:
		return nil
	}
	return a.Context.Value(key)
}

// begin returns what is known of a request before it is decided: it is allowed.
func (g *Gate) begin(ctx context.Context, r *Request) *admitted {
	a := &admitted{Context: ctx, gate: g}
	a.decision = Decision{Allowed: true, Shadow: g.cfg.Shadow, within: a}
	p := r.Plan
	if p == nil {
		p = g.plan
	}
	for i := range p.limits {
		if c, ok := g.countedIn(r, &p.limits[i]); ok {
			if r.Cost != nil {
				c.n = r.Cost(c.limit)
			}
			a.limits = append(a.limits, c)
		}
	}
	f := p.inFlight
	if f == nil && !p.Empty() {
		f = g.plan.inFlight
	}
	if f != nil {
		if c, ok := g.countedIn(r, f); ok {
			a.place = &c
		}
	}
	return a
}

// countedIn returns how a request counts in a limit, and false if that does not apply to it.
func (g *Gate) countedIn(r *Request, l *planned) (c counted, ok bool) {
	key, ok := g.keyOf(r, l.limit.Name)
	if !ok {
		return c, false
	}
	return counted{planned: l, key: key, plain: g.isPlain(key), as: g.StoredKey(key), n: 1}, true
}

// keyOf returns the key of a request in a limit, and false if the limit does not apply to it.
func (g *Gate) keyOf(r *Request, limit string) (k Key, ok bool) {
	if k, ok = r.Keys[limit]; ok {
		return k, k.Text != ""
	}
	if k = g.cfg.Keyed[limit]; k.Text != "" {
		return k, true
	}
	if r.Key.Text == "" {
		return Key{cmp.Or(r.Addr, unknown), true}, !g.cfg.SkipEmptyKey
	}
	return r.Key, true
}

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
		a.count(ctx)
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
	d.canceled = d.Err != nil && hasEnded(ctx)
	d.RetryAfter = g.retryAfter(d)
	decided = true
	return d
}

// hasEnded reports whether ctx has been canceled, or its deadline has passed. The timer of a deadline may be late.
func hasEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// enter takes the place of a request, or denies it. It returns why that could not be decided.
func (a *admitted) enter(ctx context.Context) error {
	if a.place == nil {
		return nil
	}
	if a.gate.cfg.Places == nil {
		return fmt.Errorf("admission: a plan has a limit in flight, and there is no Config.Places: %w", throttr.ErrUnsupported)
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

// count counts a request in its limits. What costs nothing in a limit is looked up before: if the store is away,
// there is one look-up, so that nobody waits for a time limit for each.
func (a *admitted) count(ctx context.Context) {
	g := a.gate
	d := &a.decision
	for i := range a.limits {
		if err := limits.CheckNumber("Cost", a.limits[i].n); err != nil {
			d.Err = fmt.Errorf("admission: limit %q: %w", a.limits[i].limit.Name, err)
			return
		}
	}
	if g.cfg.CountRefusals {
		a.each(ctx)
		return
	}
	looked := true
	results := make([]throttr.Result, len(a.limits))
	takes := make([]throttr.Take, 0, len(a.limits))
	for i := range a.limits {
		c := &a.limits[i]
		if c.n > 0 {
			takes = append(takes, c.limit.For(c.as, c.n))
			continue
		}
		if !looked {
			continue
		}
		res, err := g.limiter.Peek(ctx, c.as, c.limit, 0)
		if err != nil {
			looked = !outage.IsAway(err)
			d.Err = errors.Join(d.Err, err)
			continue
		}
		results[i] = res
		d.Allowed = d.Allowed && res.Allowed
	}
	if d.Allowed && len(takes) > 0 {
		a.take(ctx, takes, results)
	}
	for i := range a.limits {
		if results[i] != (throttr.Result{}) {
			d.add(&a.limits[i], results[i])
		}
	}
}

// take makes the takes of a request, all or none, and stores their results.
func (a *admitted) take(ctx context.Context, takes []throttr.Take, results []throttr.Result) {
	rv, ok, err := a.gate.limiter.Reserve(ctx, takes...)
	if err != nil {
		a.decision.Err = errors.Join(a.decision.Err, err)
		return
	}
	a.decision.Allowed = ok
	a.settling.reservation = rv
	taken := rv.Results()
	for i := range a.limits {
		if c := &a.limits[i]; c.n > 0 {
			c.reserved = true
			c.charged = c.n
			c.actual = c.n
			results[i] = taken[0]
			taken = taken[1:]
		}
	}
}

// each makes hits in the limits, up to the first that denies the request. If a call fails, the
// other limits still apply.
func (a *admitted) each(ctx context.Context) {
	d := &a.decision
	var errs []error
	for i := range a.limits {
		c := &a.limits[i]
		res, err := a.gate.limiter.HitN(ctx, c.as, c.limit, c.n)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.charged = c.n
		d.add(c, res)
		if d.Allowed = res.Allowed; !d.Allowed {
			break
		}
	}
	d.Err = errors.Join(errs...)
}

// Peek returns the state of the limits of a request without counting, in the order of the limits: whether one that
// counts 1 would be allowed now, and how many were counted. That on requests in flight is the last. The error is that
// of the backend.
//
// It matches [throttr.ErrConfig] if a limit of Config.Keyed has no key: its count would be that of another one.
func (g *Gate) Peek(ctx context.Context, r Request) ([]Outcome, error) {
	a := g.begin(ctx, &r)
	if err := a.checkKeys(&r); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(a.limits)+1)
	for i := range a.limits {
		c := &a.limits[i]
		res, err := g.limiter.Peek(ctx, c.as, c.limit, 1)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, c.outcome(res))
	}
	if a.place == nil || g.cfg.Places == nil {
		return outcomes, nil
	}
	s, err := g.cfg.Places.Peek(ctx, a.place.as, *a.place.places)
	if err != nil {
		return nil, err
	}
	return append(outcomes, a.place.inUse(s.InUse, s.Free)), nil
}

// Reset ends the windows of a request, as Peek describes them, so that the next request opens others. On Throttr
// servers, other processes may deny for up to a second more, see [throttr.WithDenialMemory]. The window of a limit
// whose key is the one of Config.Keyed is others', too: it goes on, unless the key is in Request.Keys. The error has
// those of all limits that could not be reset.
func (g *Gate) Reset(ctx context.Context, r Request) error {
	a := g.begin(ctx, &r)
	if err := a.checkKeys(&r); err != nil {
		return err
	}
	var errs []error
	for _, c := range a.limits {
		if _, given := r.Keys[c.limit.Name]; given || g.cfg.Keyed[c.limit.Name].Text == "" {
			errs = append(errs, g.limiter.Forget(ctx, c.as, c.limit))
		}
	}
	return errors.Join(errs...)
}

// checkKeys returns an error if a limit has keys of its own, and the request none of them.
func (a *admitted) checkKeys(r *Request) error {
	all := a.limits
	if a.place != nil {
		all = append(all[:len(all):len(all)], *a.place)
	}
	for i := range all {
		name := all[i].limit.Name
		_, given := r.Keys[name]
		if shared, keyed := a.gate.cfg.Keyed[name]; keyed && !given && shared.Text == "" {
			return invalid("limit %q has keys of its own, and Keys has none for it", name)
		}
	}
	return nil
}
