package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/inside"
)

// Config configures a [Gate]. Limits or InFlight is required.
type Config struct {
	// Limits apply together, to requests that have no [Plan] of their own. Each has a name, which clients
	// see. Limits of the same name, scale and algorithm of several Gates over one RateLimit share their
	// counts, whatever the requests come over. Give them different names if they should not.
	Limits []throttr.Limit

	// InFlight is how many requests of a key are served at a time, of all plans that have no limit of their
	// own, see [Plan.WithInFlight]. A request takes a place before it is counted, and holds it until
	// [Decision.Done]. If there is none, the request is denied and counts in no limit; if a limit denies it,
	// it holds none. Its name is not one of Limits. Default: no limit.
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

	// PlainKeys stores, logs and traces keys as they are, if they have up to 128 bytes. Default: as digests.
	PlainKeys bool

	// FailClosed refuses requests that could not be counted in all limits. Default: they are served, unless
	// the backend is full (throttr.ErrFull).
	FailClosed bool

	// Shadow serves all requests, and sends no header fields: for limits that are tried out. Requests are counted
	// as if they were denied. Observers of the RateLimit get the same events, with a context of which
	// [InShadow] is true; handlers find Decision.Allowed.
	Shadow bool

	// Jitter is by how much Decision.RetryAfter may be later than necessary, by chance: clients that were
	// denied together then do not return together. At most 24 hours. Default: 0.
	Jitter time.Duration

	// QuotaUnit is what the limits count, in header fields: "requests", "content-bytes" or
	// "concurrent-requests". Default: requests.
	QuotaUnit string

	// PartitionKey adds the key to header fields: as it is if keys are plain, and otherwise the first 12
	// bytes of its SHA-256 digest.
	PartitionKey bool
}

// maxJitter is the largest Config.Jitter.
const maxJitter = 24 * time.Hour

// Gate admits requests, or denies them. It is safe for concurrent use.
type Gate struct {
	cfg     Config
	limiter *throttr.RateLimit
	reserve reserver // that of limiter
	atOnce  bool     // most requests are decided at once, by their limits alone
	plan    *Plan    // of Config.Limits
	unit    int      // of quotaUnits
}

// New returns a Gate. It panics if limiter is nil.
//
// The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale], [throttr.ErrRange] or
// [throttr.ErrUnsupported] if a backend can't keep one of the limits. Check other plans with
// [Plan.Check].
func New(limiter *throttr.RateLimit, cfg Config) (*Gate, error) {
	if limiter == nil {
		panic("admission: New: limiter is nil")
	}
	switch {
	case len(cfg.Limits) == 0 && cfg.InFlight == inflight.Limit{}:
		return nil, invalid("Limits is empty")
	case cfg.Places == nil && cfg.InFlight != inflight.Limit{}:
		return nil, invalid("InFlight needs Places")
	case cfg.NoPlace != 0 && cfg.NoPlace != Deny && cfg.NoPlace != Unavailable:
		return nil, invalid("NoPlace is Deny or Unavailable, not %q", cfg.NoPlace)
	case cfg.Jitter < 0 || cfg.Jitter > maxJitter:
		return nil, invalid("Jitter is 0 to %v, not %v", maxJitter, cfg.Jitter)
	case !slices.Contains(quotaUnits[:], cfg.QuotaUnit):
		return nil, invalid("QuotaUnit is one of %q, not %q", quotaUnits, cfg.QuotaUnit)
	}
	plan, err := NewPlan(cfg.Limits...)
	if err == nil && cfg.InFlight != (inflight.Limit{}) {
		plan, err = plan.WithInFlight(cfg.InFlight)
	}
	if err != nil {
		return nil, err
	}
	if err := plan.Check(limiter); err != nil {
		return nil, err
	}
	if err := checkPlaces(cfg.Places); err != nil {
		return nil, err
	}
	cfg.Limits = nil // the caller may change the slice
	if cfg.NoPlace == 0 {
		cfg.NoPlace = Deny
	}
	g := &Gate{cfg: cfg, limiter: limiter, plan: plan}
	g.reserve, _ = inside.Of[reserver](limiter)
	g.atOnce = g.reserve.AtOnce() && plan.inFlight == nil && !cfg.Shadow && !cfg.CountRefusals && !cfg.PartitionKey
	g.unit = slices.Index(quotaUnits[:], cfg.QuotaUnit)
	return g, nil
}

// Admit takes a place for a request, counts n for its key in the limits of a plan, or in Config.Limits if plan is
// nil, and returns the decision. An n of 0 is not counted, but it is denied if a limit has been exceeded. The caller
// calls [Decision.Done] once the request has been served, or will not be.
func (g *Gate) Admit(ctx context.Context, key string, plan *Plan, n uint64) *Decision {
	if plan == nil {
		plan = g.plan
	}
	a := g.begin(ctx, key, g.storedKey(key), plan, n)
	d := &a.decision
	if d.Shadow {
		ctx = context.WithValue(ctx, shadowKey{}, true)
	}
	decided := false
	defer func() {
		if !decided { // a panic, such as one of an observer: the caller has nothing to call Done of
			d.Done()
		}
	}()
	failed := g.enter(ctx, a.key, d)
	if d.Allowed { // also if it could not be decided on a place
		a.count(ctx)
	}
	switch {
	case !d.Allowed:
		d.Done()
		d.Hold = nil
	case failed != nil:
		d.Err = errors.Join(failed, d.Err)
	case d.Hold != nil && !d.Shadow:
		a.parent = d.Hold.Context()
	}
	decided = true
	a.end(ctx)
	return d
}

type shadowKey struct{}

// InShadow reports whether an event, in whose context an observer was called, is of a request that is served
// whatever is decided: see Config.Shadow.
func InShadow(ctx context.Context) bool { return ctx.Value(shadowKey{}) != nil }

// enter takes the place of a request, or denies it. It returns why that could not be decided.
func (g *Gate) enter(ctx context.Context, key string, d *Decision) error {
	if d.inFlight = d.plan.inFlight; d.inFlight == nil {
		d.inFlight = g.plan.inFlight
	}
	switch {
	case d.inFlight == nil:
		return nil
	case g.cfg.Places == nil:
		return fmt.Errorf("admission: a plan has a limit in flight, and there is no Config.Places: %w", throttr.ErrUnsupported)
	}
	hold, ok, err := g.cfg.Places.TryAcquire(ctx, key, d.inFlight.limit, 1)
	if d.Hold = hold; err != nil || ok {
		return err
	}
	d.Allowed, d.noPlace, d.Strictest = false, true, d.inFlight.outcome(d.inFlight.limit.Max, 0)
	return nil
}

// count counts a request.
func (a *admitted) count(ctx context.Context) {
	d := &a.decision
	switch g := d.gate; {
	case len(d.plan.limits) == 0:
	case g.cfg.CountRefusals:
		d.hits = true
		d.each(ctx, a.key, g.limiter.HitN, a.n)
	case a.n == 0:
		d.each(ctx, a.key, g.limiter.Peek, 0)
	default:
		a.take(ctx)
	}
}

// each calls Peek or HitN in the limits, up to the first that denies the request. If a call fails, the
// other limits still apply.
func (d *Decision) each(ctx context.Context, key string,
	call func(context.Context, string, throttr.Limit, uint64) (throttr.Result, error), n uint64,
) {
	var errs []error
	for i := range d.plan.limits {
		res, err := call(ctx, key, d.plan.limits[i], n)
		if err != nil {
			errs = append(errs, err)
			if hasEnded(ctx) {
				break
			}
			continue
		}
		d.add(&d.plan.limits[i], res)
		if d.Allowed = res.Allowed; !d.Allowed {
			break
		}
	}
	d.Err = errors.Join(errs...)
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

// Peek returns the state of the limits of a key without counting, in the order of the limits: whether a
// request that counts 1 would be allowed now, and how many were counted. Without limits, Peek returns those
// of Config.Limits, and then that of Config.InFlight. The error is that of the backend.
func (g *Gate) Peek(ctx context.Context, key string, limits ...throttr.Limit) ([]Outcome, error) {
	plan, err := g.planOf(limits)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(plan.limits))
	for _, l := range plan.limits {
		res, err := g.limiter.Peek(ctx, g.storedKey(key), l, 1)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, Outcome{l.Name, l.Scale, res})
	}
	if plan.inFlight == nil {
		return outcomes, nil
	}
	s, err := g.cfg.Places.Peek(ctx, g.storedKey(key), plan.inFlight.limit)
	if err != nil {
		return nil, err
	}
	return append(outcomes, plan.inFlight.outcome(s.InUse, s.Free)), nil
}

// Reset ends the windows of a key, so that its next request opens others. The key and the limits are those
// of [Gate.Peek]. On Throttr servers, other processes may deny for up to a second more, see
// [throttr.WithDenialMemory]. The error has those of all limits that could not be reset.
func (g *Gate) Reset(ctx context.Context, key string, limits ...throttr.Limit) error {
	plan, err := g.planOf(limits)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range plan.limits {
		errs = append(errs, g.limiter.Forget(ctx, g.storedKey(key), l))
	}
	return errors.Join(errs...)
}

// planOf returns a plan of limits, or that of Config.Limits if there are none.
func (g *Gate) planOf(limits []throttr.Limit) (*Plan, error) {
	if len(limits) == 0 {
		return g.plan, nil
	}
	return NewPlan(limits...)
}
