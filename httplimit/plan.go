package httplimit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

// Limit allows a number of requests per window. How they are counted depends on the algorithm of
// the RateLimit's backend: see [throttr.WithAlgorithm]. By default, the first request that is
// counted opens a window, which ends one scale later.
type Limit struct {
	// Name identifies the limit to clients: 1 to 64 printable ASCII characters.
	Name string
	// Limit is the number of requests that a window allows, at most 999,999,999,999,999,
	// the largest number in a header field. 0 denies all requests.
	Limit uint64
	// Window is the scale: the length of a window, at least 1 ms. In header fields it is in
	// whole seconds, rounded up.
	Window time.Duration
	// Limiter counts this limit in place of the RateLimit of the middleware: for example one whose
	// backend has another algorithm, such as window.TokenBucket. Default: nil, that of the
	// middleware.
	Limiter *throttr.RateLimit
}

// PerSecond allows n requests a second. Its name is "second".
func PerSecond(n uint64) Limit { return Limit{Name: "second", Limit: n, Window: time.Second} }

// PerMinute allows n requests a minute. Its name is "minute".
func PerMinute(n uint64) Limit { return Limit{Name: "minute", Limit: n, Window: time.Minute} }

// PerHour allows n requests an hour. Its name is "hour".
func PerHour(n uint64) Limit { return Limit{Name: "hour", Limit: n, Window: time.Hour} }

// PerDay allows n requests in 24 hours. Its name is "day".
func PerDay(n uint64) Limit { return Limit{Name: "day", Limit: n, Window: 24 * time.Hour} }

// String formats the limit, for example "hour: 1000 in 1h0m0s".
func (l Limit) String() string { return fmt.Sprintf("%s: %d in %v", l.Name, l.Limit, l.Window) }

const (
	maxName = 64
	// maxInteger is the largest integer in a structured field (RFC 9651, 3.3.1).
	maxInteger = 999_999_999_999_999
)

func (l Limit) validate() error {
	if l.Name == "" || len(l.Name) > maxName {
		return fmt.Errorf("%w: the name of a limit has 1 to %d characters, %q has %d", ErrConfig, maxName, l.Name, len(l.Name))
	}
	for _, c := range []byte(l.Name) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("%w: the name of a limit is printable ASCII, %q is not", ErrConfig, l.Name)
		}
	}
	if l.Limit > maxInteger {
		return fmt.Errorf("%w: limit %q is %d, header fields hold at most %d", ErrConfig, l.Name, l.Limit, uint64(maxInteger))
	}
	if err := window.CheckScale(l.Window); err != nil {
		return fmt.Errorf("%w: limit %q: %w", ErrConfig, l.Name, err)
	}
	return nil
}

// Plan is a set of limits that apply together. Make plans once, with [NewPlan], and return them
// from Config.Plan. The zero Plan has no limits.
type Plan struct {
	limits []planned // the shortest scale first
	groups [][]int   // the indexes of the limits that have the same Limiter
	policy string    // the RateLimit-Policy field
}

// planned is a limit with its precomputed parts.
type planned struct {
	Limit
	keyPart string // the part of the key that identifies the limit
	item    string // the quoted name, for header fields
}

// NewPlan returns a plan of limits, which must have different names. A plan without limits
// limits nothing. The error matches [ErrConfig]. It also matches [throttr.ErrScale] if a scale
// is less than 1 ms.
func NewPlan(limits ...Limit) (*Plan, error) {
	p := &Plan{limits: make([]planned, len(limits))}
	names := make(map[string]bool, len(limits))
	for i, l := range limits {
		if err := l.validate(); err != nil {
			return nil, err
		}
		if names[l.Name] {
			return nil, fmt.Errorf("%w: two limits are named %q", ErrConfig, l.Name)
		}
		names[l.Name] = true
		p.limits[i] = planned{
			Limit:   l,
			keyPart: strconv.Itoa(len(l.Name)) + ":" + l.Name + ":",
			item:    quote(l.Name),
		}
	}
	slices.SortStableFunc(p.limits, func(a, b planned) int { return cmp.Compare(a.Window, b.Window) })
	p.policy = policyField(p.limits)
	p.groups = groups(p.limits)
	return p, nil
}

// groups returns the indexes of the limits that have the same Limiter.
func groups(limits []planned) (groups [][]int) {
	of := map[*throttr.RateLimit]int{}
	for i, l := range limits {
		g, ok := of[l.Limiter]
		if !ok {
			g = len(groups)
			of[l.Limiter], groups = g, append(groups, nil)
		}
		groups[g] = append(groups[g], i)
	}
	return groups
}

// MustPlan is [NewPlan] for limits that are known to be valid. It panics if NewPlan returns an
// error.
func MustPlan(limits ...Limit) *Plan {
	p, err := NewPlan(limits...)
	if err != nil {
		panic(err)
	}
	return p
}

// Check returns an error if limiter, or the Limiter that a limit has, can't keep one of the limits.
// The error matches [ErrConfig], and [throttr.ErrScale], [throttr.ErrRange], or
// [errors.ErrUnsupported]: the backend can't do its algorithm.
func (p *Plan) Check(limiter *throttr.RateLimit) error {
	for _, l := range p.limits {
		if err := cmp.Or(l.Limiter, limiter).Check(l.Window, l.Limit.Limit); err != nil {
			return fmt.Errorf("%w: limit %q: %w", ErrConfig, l.Name, err)
		}
	}
	return nil
}

// Limits returns the limits of the plan, the shortest scale first.
func (p *Plan) Limits() []Limit {
	limits := make([]Limit, len(p.limits))
	for i, l := range p.limits {
		limits[i] = l.Limit
	}
	return limits
}
