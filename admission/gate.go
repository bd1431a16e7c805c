package admission

import (
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
)

// Config configures a [Gate]. Limits or InFlight is required.
type Config struct {
	// Limits apply together, to requests that have no [Plan] of their own. Each has a name, which clients
	// see. Limits of the same name, scale and algorithm of several Gates over one RateLimit share their
	// counts, whatever the requests come over. Give them different names if they should not.
	Limits []throttr.Limit

	// InFlight is how many requests of a key are served at a time, of all plans that have no such limit of their own,
	// see [Plan.WithInFlight]. A request takes a place before it is counted, and holds it until [Decision.Done]. If
	// there is no place, the request is denied and counts in no limit. If a limit denies the request, it holds no
	// place. The name of InFlight is not one of Limits. Default: no limit.
	InFlight inflight.Limit

	// Places holds the places of InFlight, and of plans: of one process and store, see [inflight.New]. The
	// caller closes it after the last request. What it can't decide could not be counted, see FailClosed.
	Places *inflight.Limiter

	// NoPlace is the Verdict on requests for which there is no place: Deny, the default, or Unavailable.
	NoPlace Verdict

	// CountRefusals counts denied requests, too: a request is a hit in one limit after the other, the
	// shortest scale first, up to the one that denies it, and counts in all of these. Default: a request
	// that a limit denies counts in none of them. With rolling algorithms, a limit never counts what it
	// denies.
	CountRefusals bool

	// OnlyPlans is for requests that have plans of their own: Limits may be empty, and then limits nothing.
	OnlyPlans bool

	// PlainKeys stores, logs and traces all keys as they are, if they have up to 128 bytes, but for texts of a Key
	// that look like addresses and are none: see [Key.Plain]. Default: addresses are, and others are digests.
	PlainKeys bool

	// Keyed has the names of limits, that on requests in flight included, that have keys of their own: requests have
	// these in Request.Keys. The values are the keys of requests that do not, such as [Everyone]. One without a text
	// is none: such requests count as if the limit were not in Keyed, and Peek and Reset fail. With OnlyPlans, it has
	// the names of all limits or of none, and requests of a plan that has others are Misconfigured: otherwise, a name
	// that is misspelt would make a limit of an account one of an address.
	Keyed map[string]Key

	// SkipEmptyKey leaves out the limits of which no key is known but the address. Default: they count by the address.
	SkipEmptyKey bool

	// FailClosed refuses requests that could not be counted in all limits. Default: they are served, unless
	// the backend is full (throttr.ErrFull) or closed.
	FailClosed bool

	// Jitter is by how much Decision.RetryAfter may be later than necessary, by chance: clients that were
	// denied together then do not return together. At most 24 hours. Default: 0.
	Jitter time.Duration

	// PartitionKey adds its key to each limit in header fields: as it is if it is plain, and otherwise the first 12
	// bytes of its SHA-256 digest.
	PartitionKey bool
}

// maxJitter is the largest Config.Jitter.
const maxJitter = 24 * time.Hour

// Gate admits requests, or denies them. It is safe for concurrent use.
type Gate struct {
	cfg     Config
	limiter *throttr.RateLimit

	plan     *Plan         // of Config.Limits
	allKeyed bool          // all limits have keys of their own
	later    chan struct{} // has one for each request that is given back in the background
}

// New returns a Gate. It panics if limiter is nil.
//
// The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale], [throttr.ErrRange] or
// [throttr.ErrUnsupported] if a backend can't keep one of the limits. Check other plans with
// [Gate.Check].
func New(limiter *throttr.RateLimit, cfg Config) (*Gate, error) {
	if limiter == nil {
		panic("admission: New: limiter is nil")
	}
	switch {
	case len(cfg.Limits) == 0 && cfg.InFlight == inflight.Limit{} && !cfg.OnlyPlans:
		return nil, invalid("Limits is empty, and there is no InFlight and no plan")
	case cfg.NoPlace != 0 && cfg.NoPlace != Deny && cfg.NoPlace != Unavailable:
		return nil, invalid("NoPlace is Deny or Unavailable, not %q", cfg.NoPlace)
	case cfg.Jitter < 0 || cfg.Jitter > maxJitter:
		return nil, invalid("Jitter is 0 to %v, not %v", maxJitter, cfg.Jitter)
	}
	plan, err := NewPlan(cfg.Limits...)
	if err == nil && cfg.InFlight != (inflight.Limit{}) {
		plan, err = plan.WithInFlight(cfg.InFlight)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Places != nil {
		if err := cfg.Places.Check(); err != nil {
			return nil, invalid("Places: %w", err)
		}
	}
	cfg.Limits = nil // the plan has them
	cfg.Keyed = maps.Clone(cfg.Keyed)
	if cfg.NoPlace == 0 {
		cfg.NoPlace = Deny
	}
	g := &Gate{cfg: cfg, limiter: limiter, plan: plan, later: make(chan struct{}, maxLater)}
	g.allKeyed = cfg.OnlyPlans && len(cfg.Keyed) > 0
	if err := g.Check(plan); err != nil {
		return nil, err
	}
	return g, nil
}

// Check returns an error if requests of a plan would be Misconfigured: the backend can't keep one of its limits, as
// [Plan.Check] says, or a limit is not in Config.Keyed, or there is no Config.Places for it. It matches
// [throttr.ErrConfig].
func (g *Gate) Check(p *Plan) error {
	if err := p.Check(g.limiter); err != nil {
		return err
	}
	if p.inFlight != nil && g.cfg.Places == nil {
		return invalid("limit %q is on requests in flight, and there is no Places: see inflight.New", p.inFlight.limit.Name)
	}
	return g.checkKeys(&Request{Plan: p, Keys: g.cfg.Keyed, Addr: unknown})
}

// refusedFor is the RetryAfter of a request that could not be counted.
const refusedFor = 5 * time.Second

// retryAfter returns Decision.RetryAfter.
func (g *Gate) retryAfter(d *Decision) time.Duration {
	after := d.Strictest.RetryAfter
	switch {
	case d.Allowed && d.Err == nil:
		return 0
	case d.Allowed:
		after = refusedFor
		var notYet *inflight.NotYetError
		if errors.As(d.Err, &notYet) {
			after = notYet.RetryAfter
		}
	}
	if g.cfg.Jitter > 0 && after < throttr.Never {
		after += rand.N(g.cfg.Jitter + 1)
	}
	return after
}
