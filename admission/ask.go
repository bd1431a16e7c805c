package admission

import (
	"context"
	"errors"
)

// Peek returns the state of the limits of a request without counting, in the order of the limits: whether one that
// counts 1 would be allowed now, and how many were counted. That on requests in flight is the last. The error is that
// of the backend.
//
// It matches [throttr.ErrConfig] if a limit of Config.Keyed has no key: its count would be that of another one.
func (g *Gate) Peek(ctx context.Context, r Request) ([]Outcome, error) {
	a, err := g.ask(ctx, &r)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(a.all))
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
	a, err := g.ask(ctx, &r)
	if err != nil {
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

// ask returns what is known of a request. It returns an error if a limit has keys of its own, and the request none of
// them.
func (g *Gate) ask(ctx context.Context, r *Request) (*admitted, error) {
	a := g.begin(ctx, r)
	for i := range a.all {
		name := a.all[i].limit.Name
		_, given := r.Keys[name]
		if shared, keyed := g.cfg.Keyed[name]; keyed && !given && shared.Text == "" {
			return nil, invalid("limit %q has keys of its own, and Keys has none for it", name)
		}
	}
	return a, nil
}
