package admission

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
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
	all             []counted // the limits that apply, and the place
	limits          []counted // without the place
	place           *counted  // nil: the request needs none

	mu          sync.Mutex           // guards what follows, and charged of limits
	reservation *throttr.Reservation // of what was counted; nil: nothing is given back any more
	used        []uint64             // what Commit has said of each limit; nil: nothing
	over        bool                 // Done was called
}

// counted is a limit in which a request counts.
type counted struct {
	*planned
	key     Key             // Plain if it is stored as it is
	as      string          // the stored key
	scale   time.Duration   // the length of the window
	n       uint64          // the cost
	result  *throttr.Result // nil: the request could not be counted
	charged uint64          // what is counted of the request now: 0 of a call that has failed, and of what was given back
}

// begin returns what is known of a request before it is decided: it is allowed.
func (g *Gate) begin(ctx context.Context, r *Request) *admitted {
	a := &admitted{Context: ctx, gate: g}
	a.decision = Decision{Allowed: true, Shadow: g.cfg.Shadow, within: a}
	p := r.Plan
	if p == nil {
		p = g.plan
	}
	inFlight := p.inFlight
	if inFlight == nil && !p.Empty() {
		inFlight = g.plan.inFlight
	}
	size := len(p.limits)
	if inFlight != nil {
		size++
	}
	a.all = make([]counted, 0, size)
	for i := range p.limits {
		a.add(r, &p.limits[i])
	}
	a.limits = a.all
	if inFlight != nil && a.add(r, inFlight) {
		a.place = &a.all[len(a.limits)]
	}
	return a
}

// add adds a limit, and reports whether it applies to the request.
func (a *admitted) add(r *Request, l *planned) bool {
	g := a.gate
	key, ok := g.keyOf(r, l.limit.Name)
	if !ok {
		return false
	}
	key.Plain = g.isPlain(key)
	c := counted{planned: l, key: key, as: g.StoredKey(key), scale: l.limit.Scale, n: 1}
	if l.limit.Calendar != 0 {
		c.scale = limits.Length(&l.limit, time.Now())
	}
	if r.Cost != nil && l.places == nil {
		c.n = r.Cost(l.limit)
	}
	a.all = append(a.all, c)
	return true
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

// outcome returns the outcome of a result.
func (c *counted) outcome(res throttr.Result) Outcome {
	if c.limit.Calendar != 0 && !res.ResetAt.IsZero() {
		c.scale = limits.Length(&c.limit, res.ResetAt.Add(-1))
	}
	return Outcome{Name: c.limit.Name, Key: c.key.Text, Scale: c.scale, Result: res, of: c}
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
