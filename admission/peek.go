package admission

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Peek returns the state of the limits of a request without counting, in the order of the limits: whether one that
// counts 1 would be allowed now, and how many were counted. That on requests in flight is the last. ResetAt is zero if
// nothing is counted, unless the limit has a Calendar or, by its own Algorithm, aligned windows: then it is when the
// present one ends, by the clock of this process. The error is that of the backend.
//
// It matches [throttr.ErrConfig] if a limit of Config.Keyed has no key, or the request none at all: the count would be
// that of another one. That of requests whose address is not known is under the Addr "unknown".
func (g *Gate) Peek(ctx context.Context, r Request) ([]Outcome, error) {
	if err := g.checkKeys(&r); err != nil {
		return nil, err
	}
	s := g.begin(ctx, &r)
	outcomes := make([]Outcome, 0, len(s.limits)+1)
	for i := range s.limits {
		l := &s.limits[i]
		res, err := g.limiter.Peek(ctx, g.StoredKey(l.key), l.limit, 1)
		if err != nil {
			return nil, err
		}
		if l.isAligned() && res.ResetAt.IsZero() {
			now := time.Now()
			res.ResetAfter = l.left(now)
			res.ResetAt = now.Add(res.ResetAfter)
		}
		outcomes = append(outcomes, l.outcome(res))
	}
	if s.place == nil || g.cfg.Places == nil {
		return outcomes, nil
	}
	places, err := g.cfg.Places.Peek(ctx, g.StoredKey(s.place.key), *s.place.places)
	if err != nil {
		return nil, err
	}
	return append(outcomes, s.place.inUse(places.InUse, places.Free)), nil
}

// Reset ends the windows of a request, as Peek describes them, so that the next request opens others. On Throttr
// servers, other processes may deny for up to a second more, see [throttr.WithDenialMemory]. The window of a limit
// whose key is the one of Config.Keyed is others', too: it goes on, unless the key is in Request.Keys. The error has
// those of all limits that could not be reset.
func (g *Gate) Reset(ctx context.Context, r Request) error {
	err := g.checkKeys(&r)
	if err != nil {
		return err
	}
	for _, l := range g.begin(ctx, &r).limits {
		if _, given := r.Keys[l.limit.Name]; given || g.cfg.Keyed[l.limit.Name].Text == "" {
			err = errors.Join(err, g.limiter.Forget(ctx, g.StoredKey(l.key), l.limit))
		}
	}
	return err
}

// checkKeys returns an error if a limit of a request should have a key of its own, and has none, or if its key can't be
// known.
func (g *Gate) checkKeys(r *Request) error {
	all, inFlight := g.limitsOf(r)
	if inFlight != nil {
		all = append(slices.Clip(all), *inFlight)
	}
	for i := range all {
		name := all[i].limit.Name
		_, given := r.Keys[name]
		shared, keyed := g.cfg.Keyed[name]
		if (keyed || g.allKeyed) && !given && shared.Text == "" {
			return invalid("limit %q has no key of its own, as others have", name)
		}
		if !given && shared.Text == "" && r.Key.Text == "" && r.Addr == "" && !g.cfg.SkipEmptyKey {
			return invalid("the request has no key for limit %q: neither one of its own, nor Key or Addr", name)
		}
	}
	return nil
}
