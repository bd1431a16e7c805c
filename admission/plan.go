package admission

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
)

// maxInteger is the largest integer in a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// validate returns the error of a limit that no plan can have.
func validate(l throttr.Limit) error {
	if err := validateFields(l); err != nil {
		return err
	}
	// The algorithm of the RateLimit is not known here. A token bucket may have all fields.
	switch {
	case l.Algorithm != 0:
	case l.Calendar != 0:
		l.Algorithm = throttr.CalendarWindow
	default:
		l.Algorithm = throttr.TokenBucket
	}
	if err := limits.Check(&l); err != nil {
		return invalid("limit %q: %w", l.Name, err)
	}
	return nil
}

// validateFields returns the error of a limit that header fields can't have.
func validateFields(l throttr.Limit) error {
	switch {
	case l.Name == "":
		return invalid("a limit has no name: %v", l)
	case l.Burst > maxInteger:
		return invalid("limit %q has a Burst of %d, header fields hold at most %d", l.Name, l.Burst, uint64(maxInteger))
	case l.Max > maxInteger && l.Max != throttr.Unlimited:
		return invalid("limit %q has a Max of %d, header fields hold at most %d", l.Name, l.Max, uint64(maxInteger))
	}
	return nil
}

// invalid returns an error that matches throttr.ErrConfig.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{throttr.ErrConfig}, args...)...)
}

// Plan is a set of limits that apply together. Make plans once, with [NewPlan]. The zero Plan has no limits.
type Plan struct {
	limits   []planned // the shortest scale first
	inFlight *planned  // or nil
}

// planned is a limit of a plan.
type planned struct {
	limit  throttr.Limit   // of one on requests in flight, its Name and Max
	places *inflight.Limit // it is on requests in flight; or nil
	item   string          // the name as items of header fields begin with it
	policy string          // the item of the RateLimit-Policy field; "": it has none, or one for each window
}

// window returns the length of a window that contains a time. Of a token bucket, it is the time in which an empty one
// fills.
func (p *planned) window(at time.Time) time.Duration {
	l := &p.limit
	if l.Burst == 0 || l.Max == 0 || l.Max == throttr.Unlimited {
		return limits.Length(l, at)
	}
	fill, _ := limits.MulDiv(l.Burst, uint64(l.Scale), l.Max) // limits.Check has seen that it does not overflow
	return time.Duration(fill)
}

// left returns the time until a window would end that is opened now.
func (p *planned) left(now time.Time) time.Duration {
	if p.isAligned() {
		return limits.Left(&p.limit, now)
	}
	return p.window(now)
}

// isAligned reports whether windows end at times that do not depend on requests.
func (p *planned) isAligned() bool {
	return p.limit.Calendar != 0 || p.limit.Algorithm == throttr.AlignedWindow
}

// NewPlan returns a plan of limits, which must have different names. Each Max is at most
// 999,999,999,999,999, the largest number in a header field, or throttr.Unlimited. A plan without limits
// limits nothing. The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale] or
// [throttr.ErrRange] if that is what is wrong with a limit.
func NewPlan(limits ...throttr.Limit) (*Plan, error) {
	p := &Plan{}
	for _, l := range limits {
		if err := validate(l); err != nil {
			return nil, err
		}
		if p.Has(l.Name) {
			return nil, invalid("two limits are named %q", l.Name)
		}
		f := planned{limit: l, item: item(l.Name)}
		if l.Calendar == 0 {
			f.policy = f.policyItem(nil)
		}
		p.limits = append(p.limits, f)
	}
	slices.SortStableFunc(p.limits, byLength)
	return p, nil
}

// byLength compares the lengths of the windows of limits.
func byLength(a, b planned) int {
	now := time.Now()
	return cmp.Compare(limits.Length(&a.limit, now), limits.Length(&b.limit, now))
}

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
	f := &planned{limit: throttr.Limit{Name: l.Name, Max: l.Max}, places: &l, item: item(l.Name)}
	f.policy = f.policyItem(nil)
	if err := validateFields(f.limit); err != nil {
		return nil, err
	}
	if (&Plan{limits: p.limits}).Has(l.Name) {
		return nil, invalid("two limits are named %q", l.Name)
	}
	if err := limits.CheckPlaces(l.Name, min(l.Max, maxInteger), cmp.Or(l.Lease, inflight.DefaultLease)); err != nil {
		return nil, invalid("limit %q: %w", l.Name, err)
	}
	return &Plan{p.limits, f}, nil
}

// Check returns an error if limiter can't keep one of the limits. It matches [throttr.ErrConfig], and
// [throttr.ErrScale], [throttr.ErrRange], or [throttr.ErrUnsupported]: the backend does not have the
// algorithm.
func (p *Plan) Check(limiter *throttr.RateLimit) error {
	for i := range p.limits {
		if err := limiter.Check(p.limits[i].limit); err != nil {
			return invalid("limit %q: %w", p.limits[i].limit.Name, err)
		}
	}
	return nil
}

// Limits returns the limits of the plan, the shortest scale first, without that on requests in flight.
func (p *Plan) Limits() []throttr.Limit {
	all := make([]throttr.Limit, len(p.limits))
	for i := range p.limits {
		all[i] = p.limits[i].limit
	}
	return all
}

// Has reports whether the plan has a limit of a name, that on requests in flight included.
func (p *Plan) Has(name string) bool {
	return p.inFlight != nil && p.inFlight.limit.Name == name ||
		slices.ContainsFunc(p.limits, func(l planned) bool { return l.limit.Name == name })
}

// Empty reports whether the plan has no limits. Requests of such a plan are served uncounted, and without a place.
func (p *Plan) Empty() bool { return len(p.limits) == 0 && p.inFlight == nil }
