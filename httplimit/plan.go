package httplimit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/internal/limits"
)

// PerSecond allows n requests a second. Its name is "second".
func PerSecond(n uint64) throttr.Limit {
	return throttr.Limit{Name: "second", Max: n, Scale: time.Second}
}

// PerMinute allows n requests a minute. Its name is "minute".
func PerMinute(n uint64) throttr.Limit {
	return throttr.Limit{Name: "minute", Max: n, Scale: time.Minute}
}

// PerHour allows n requests an hour. Its name is "hour".
func PerHour(n uint64) throttr.Limit { return throttr.Limit{Name: "hour", Max: n, Scale: time.Hour} }

// PerDay allows n requests in 24 hours. Its name is "day".
func PerDay(n uint64) throttr.Limit { return throttr.Limit{Name: "day", Max: n, Scale: 24 * time.Hour} }

// maxInteger is the largest integer in a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// validate returns the error of a limit that no middleware can have.
func validate(l throttr.Limit) error {
	switch {
	case l.Name == "":
		return invalid("a limit has no name: %v", l)
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
	return &callerr.Error{Package: "httplimit", Err: fmt.Errorf("%w: "+format, append([]any{throttr.ErrConfig}, args...)...)}
}

// Plan is a set of limits that apply together. Make plans once, with [NewPlan], and return them
// from Config.Plan. The zero Plan has no limits.
type Plan struct {
	limits []throttr.Limit // the shortest scale first
	items  []string        // their quoted names, for header fields
	policy string          // the RateLimit-Policy field
}

// NewPlan returns a plan of limits, which must have different names. A plan without limits
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
	for _, l := range p.limits {
		p.items = append(p.items, quote(l.Name))
	}
	p.policy = p.policyField()
	return p, nil
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

// Limits returns the limits of the plan, the shortest scale first.
func (p *Plan) Limits() []throttr.Limit { return slices.Clone(p.limits) }
