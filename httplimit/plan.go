package httplimit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Limit is how many requests are allowed in a window: at most Limit from its start, which
// is the first request that counts, until Window later.
type Limit struct {
	// Name is what clients know the limit by: 1 to 64 printable ASCII characters.
	Name string
	// Limit is at most 999,999,999,999,999, the largest number that a header field can
	// tell. 0 denies.
	Limit uint64
	// Window is positive. Header fields tell it in whole seconds, rounded up.
	Window time.Duration
}

// PerSecond is n requests a second, named "second".
func PerSecond(n uint64) Limit { return Limit{Name: "second", Limit: n, Window: time.Second} }

// PerMinute is n requests a minute, named "minute".
func PerMinute(n uint64) Limit { return Limit{Name: "minute", Limit: n, Window: time.Minute} }

// PerHour is n requests an hour, named "hour".
func PerHour(n uint64) Limit { return Limit{Name: "hour", Limit: n, Window: time.Hour} }

// PerDay is n requests in 24 hours, named "day".
func PerDay(n uint64) Limit { return Limit{Name: "day", Limit: n, Window: 24 * time.Hour} }

// String returns the limit in words.
func (l Limit) String() string { return fmt.Sprintf("%s: %d in %v", l.Name, l.Limit, l.Window) }

const (
	maxName = 64
	// maxInteger is the largest integer in a structured field (RFC 9651, 3.3.1).
	maxInteger = 999_999_999_999_999
)

func (l Limit) validate() error {
	if l.Name == "" || len(l.Name) > maxName {
		return fmt.Errorf("%w: a limit's name has 1 to %d characters, %q has %d", ErrConfig, maxName, l.Name, len(l.Name))
	}
	for _, c := range []byte(l.Name) {
		if c < ' ' || c > '~' {
			return fmt.Errorf("%w: a limit's name is printable ASCII, %q is not", ErrConfig, l.Name)
		}
	}
	if l.Limit > maxInteger {
		return fmt.Errorf("%w: limit %q is %d, at most %d can be told to clients", ErrConfig, l.Name, l.Limit, uint64(maxInteger))
	}
	if l.Window <= 0 {
		return fmt.Errorf("%w: the window of limit %q must be positive, it is %v", ErrConfig, l.Name, l.Window)
	}
	return nil
}

// Plan is limits that hold at the same time. Make plans once, with [NewPlan], and return
// them in Config.Plan. The zero Plan has no limits.
type Plan struct {
	limits []planned // the shortest window first
	policy string    // the RateLimit-Policy field
}

// planned is a limit with what can be prepared of it.
type planned struct {
	Limit
	keyPart string // goes into the key
	item    string // its name as it is in header fields
}

// NewPlan returns a plan of limits, which must have different names. Without any, it does
// not limit. The error matches [ErrConfig].
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
	return p, nil
}

// MustPlan is [NewPlan] for limits that are known to be valid. It panics where NewPlan
// returns an error.
func MustPlan(limits ...Limit) *Plan {
	p, err := NewPlan(limits...)
	if err != nil {
		panic(err)
	}
	return p
}

// Limits returns the plan's limits, the shortest window first.
func (p *Plan) Limits() []Limit {
	limits := make([]Limit, len(p.limits))
	for i, l := range p.limits {
		limits[i] = l.Limit
	}
	return limits
}
