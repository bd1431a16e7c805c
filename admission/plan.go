package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
)

// maxInteger is the largest integer in a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// validate returns the error of a limit that no plan can have.
func validate(l throttr.Limit) error {
	switch {
	case l.Name == "":
		return invalid("a limit has no name: %v", l)
	case l.Burst > maxInteger:
		return invalid("limit %q has a Burst of %d, header fields hold at most %d", l.Name, l.Burst, uint64(maxInteger))
	case l.Max > maxInteger && l.Max != throttr.Unlimited:
		return invalid("limit %q has a Max of %d, header fields hold at most %d", l.Name, l.Max, uint64(maxInteger))
	}
	// The algorithm of the RateLimit is not known here. A token bucket may have all fields.
	l.Algorithm = cmp.Or(l.Algorithm, throttr.TokenBucket)
	if err := limits.Check(l); err != nil {
		return invalid("limit %q: %w", l.Name, err)
	}
	return nil
}

// invalid returns an error that matches throttr.ErrConfig.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{throttr.ErrConfig}, args...)...)
}

// Plan is a set of limits that apply together. Make plans once, with [NewPlan]. The zero Plan has no limits.
type Plan struct {
	limits   []throttr.Limit         // the shortest scale first
	items    []string                // their quoted names, for header fields
	policies []string                // their items in the RateLimit-Policy field; "": none
	policy   [len(quotaUnits)]string // the field
	room     int                     // for most RateLimit fields
	atOnce   bool                    // a RateLimit may need no Reservation
	inFlight *inFlight               // or nil
}

// inFlight is a limit on requests in flight.
type inFlight struct {
	limit        inflight.Limit
	item, policy string // as those of a Plan
}

// noPlaceFor is the RetryAfter of a request for which there is no place. When there will be one is not known.
const noPlaceFor = time.Second

// outcome returns the outcome with so many places in use, and free.
func (f *inFlight) outcome(used, free uint64) Outcome {
	res := throttr.Result{Allowed: free > 0, Limit: f.limit.Max, Count: used, Remaining: free}
	switch {
	case f.limit.Max == 0:
		res.RetryAfter = throttr.Never
	case free == 0:
		res.RetryAfter = noPlaceFor
	}
	return Outcome{Name: f.limit.Name, Result: res}
}

// NewPlan returns a plan of limits, which must have different names. Each Max is at most
// 999,999,999,999,999, the largest number in a header field, or throttr.Unlimited. A plan without limits
// limits nothing. The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale] or
// [throttr.ErrRange] if that is what is wrong with a limit.
func NewPlan(limits ...throttr.Limit) (*Plan, error) {
	p := &Plan{limits: slices.Clone(limits)}
	names := make(map[string]bool, len(limits))
	for _, l := range limits {
		if err := validate(l); err != nil {
			return nil, err
		}
		if names[l.Name] {
			return nil, invalid("two limits are named %q", l.Name)
		}
		names[l.Name] = true
	}
	slices.SortStableFunc(p.limits, func(a, b throttr.Limit) int { return cmp.Compare(a.Scale, b.Scale) })
	for i := range p.limits {
		p.items = append(p.items, quote(p.limits[i].Name))
		p.policies = append(p.policies, policyItem(p.items[i], &p.limits[i]))
		p.room += len(p.items[i]) + roomPerItem
	}
	p.atOnce = len(limits) > 0 && len(limits) <= fewLimits && !slices.ContainsFunc(limits, isSpecial)
	for unit := range p.policy {
		p.policy[unit] = p.policyField(unit, "")
	}
	return p, nil
}

// isSpecial reports whether a RateLimit does not just ask its backend.
func isSpecial(l throttr.Limit) bool { return l.Max == 0 || l.Max == throttr.Unlimited || l.Shadow }

// MustPlan is [NewPlan] for limits that are known to be valid. It panics if NewPlan returns an
// error.
func MustPlan(limits ...throttr.Limit) *Plan {
	p, err := NewPlan(limits...)
	if err != nil {
		panic(err)
	}
	return p
}

// WithInFlight returns a plan that also has a limit on requests in flight, in place of Config.InFlight, which
// otherwise applies. Its name is not one of the other limits, and its Max at most 999,999,999,999,999, or
// throttr.Unlimited. The error matches [throttr.ErrConfig], and [throttr.ErrRange] if that is what is wrong.
func (p *Plan) WithInFlight(l inflight.Limit) (*Plan, error) {
	f := &inFlight{limit: l, item: quote(l.Name)}
	if l.Max != throttr.Unlimited {
		f.policy = f.item + ";q=" + strconv.FormatUint(l.Max, 10) + `;qu="concurrent-requests"`
	}
	switch {
	case l.Name == "":
		return nil, invalid("a limit has no name: %v", l)
	case l.Max > maxInteger && l.Max != throttr.Unlimited:
		return nil, invalid("limit %q has a Max of %d, header fields hold at most %d", l.Name, l.Max, uint64(maxInteger))
	case slices.Contains(p.items, f.item):
		return nil, invalid("two limits are named %q", l.Name)
	}
	if err := limits.CheckPlaces(l.Name, min(l.Max, maxInteger), cmp.Or(l.Lease, inflight.DefaultLease)); err != nil {
		return nil, invalid("limit %q: %w", l.Name, err)
	}
	with := *p
	with.inFlight = f
	return &with, nil
}

// checkPlaces returns an error if the backend of places has none.
func checkPlaces(places *inflight.Limiter) error {
	if places == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that no store is asked
	if _, err := places.Peek(ctx, "", inflight.Limit{}); errors.Is(err, throttr.ErrUnsupported) {
		return invalid("Places: %w", err)
	}
	return nil
}

// Check returns an error if limiter can't keep one of the limits. It matches [throttr.ErrConfig], and
// [throttr.ErrScale], [throttr.ErrRange], or [throttr.ErrUnsupported]: the backend does not have the
// algorithm.
func (p *Plan) Check(limiter *throttr.RateLimit) error {
	for _, l := range p.limits {
		if err := limiter.Check(l); err != nil {
			return invalid("limit %q: %w", l.Name, err)
		}
	}
	return nil
}

// Limits returns the limits of the plan, the shortest scale first, without that on requests in flight.
func (p *Plan) Limits() []throttr.Limit { return slices.Clone(p.limits) }

// Empty reports whether the plan has no limits. Adapters serve the requests of such a plan uncounted, and without a
// place.
func (p *Plan) Empty() bool { return len(p.limits) == 0 && p.inFlight == nil }
