package httplimit

import (
	"context"
	"time"

	"github.com/throttr-go/throttr"
)

// Decision is the decision on a request.
type Decision struct {
	Key     string // the key under which the request was counted; may be empty
	Allowed bool   // no limit has denied the request
	// Strictest is the outcome of the limit that has denied the request. If none has, it is
	// the outcome with the least remaining, and of two with the same remaining the one with
	// the longer scale. It is the zero Outcome if the backend has failed for all limits.
	Strictest Outcome
	// Outcomes are those of all limits in which the request was counted, the shortest scale
	// first. If the request was denied, the last limit has denied it.
	Outcomes []Outcome
	// Err says why the request could not be counted in some limits. It is nil if it was
	// counted in all of them.
	Err error
}

// Outcome is the result of one limit for a request.
type Outcome struct {
	Name   string        // of the limit
	Window time.Duration // the scale of the limit
	// Result is Degraded if the backend has failed and a policy or a fallback has decided.
	throttr.Result
}

// known reports whether the result describes a window. It does not if a policy has decided.
func (o *Outcome) known() bool { return !o.Degraded || o.Count > 0 }

// add adds the outcome of another limit, whose scale is not shorter than the last one's.
func (d *Decision) add(o Outcome) {
	d.Outcomes = append(d.Outcomes, o)
	switch {
	case !o.Allowed:
		d.Allowed = false
		d.Strictest = o
	case o.known() && (d.Strictest.Name == "" || o.Remaining <= d.Strictest.Remaining):
		d.Strictest = o
	}
}

type contextKey struct{}

func newContext(ctx context.Context, d Decision) context.Context {
	return context.WithValue(ctx, contextKey{}, &d)
}

// FromContext returns the decision on the request whose context is ctx. If several middlewares
// have counted the request, it is the decision of the innermost one. FromContext returns false
// if the request was not counted. The caller must not modify Outcomes.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(contextKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}
