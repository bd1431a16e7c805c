package admission

import (
	"cmp"

	"github.com/throttr-go/throttr"
)

// Request is what a Gate decides on. The zero Request comes from nobody known, counts 1, and has the limits of the
// Config. The documentation of the package says which of its keys a limit uses.
type Request struct {
	// Keys are the keys of limits by their names, that on requests in flight included. One without a text leaves
	// its limit out.
	Keys map[string]Key
	// Key is that of all limits that have no other.
	Key Key
	// Addr is the address that the request comes from, as [Addr] or [Addrs.Key] returns it. It is stored as it is.
	Addr string
	// Plan has the limits of the request. Nil: those of the Config.
	Plan *Plan
	// PlanErr says why the plan is not known. Without another one, the limits of the Config apply, and if there are
	// none, the request could not be counted.
	PlanErr error
	// Cost returns what the request counts in a limit. One in which it costs 0 does not apply to it. More than 2⁶³-1 is
	// a mistake in the program, such as a length of -1 that was converted: the error matches [throttr.ErrRange], and
	// the request is Misconfigured. Nil: 1.
	Cost func(throttr.Limit) uint64
}

// keyOf returns the key of a request in a limit, and false if the limit does not apply to it.
func (g *Gate) keyOf(r *Request, limit string) (k Key, ok bool) {
	if k, ok = r.Keys[limit]; ok {
		return k, k.Text != ""
	}
	if k = g.cfg.Keyed[limit]; k.Text != "" {
		return k, true
	}
	if r.Key.Text != "" {
		return r.Key, true
	}
	return Key{cmp.Or(r.Addr, unknown), true}, !g.cfg.SkipEmptyKey
}

// limitsOf returns the limits of a request, and that on requests in flight, or nil: an empty plan has none.
func (g *Gate) limitsOf(r *Request) (limits []planned, inFlight *planned) {
	p := cmp.Or(r.Plan, g.plan)
	if p.Empty() {
		return nil, nil
	}
	return p.limits, cmp.Or(p.inFlight, g.plan.inFlight)
}
