package httplimit

import (
	"context"
	"time"

	"github.com/throttr-go/throttr"
)

// Decision is what was decided on a request.
type Decision struct {
	Key     string // whom the request counts for; may be empty
	Allowed bool   // no limit has denied it
	// Strictest is the limit that has denied the request, or else the one with the least
	// remaining; of two with the same, that with the longer window. It is the zero
	// Outcome where nothing is known, as the backend has failed.
	Strictest Outcome
	// Outcomes are those of all limits that the request was counted in, the shortest
	// window first. If it was denied, the last one did it.
	Outcomes []Outcome
	// Err is why the request could not be counted in some limits; nil if it could.
	Err error
}

// Outcome is what one limit has decided on a request.
type Outcome struct {
	Name           string        // the limit's
	Window         time.Duration // the limit's
	throttr.Result               // see there; Degraded if a policy has decided, as the backend gave no answer
}

// known reports whether Result tells about a window. Where a policy has decided, it does
// not.
func (o *Outcome) known() bool { return !o.Degraded || o.Count > 0 }

// add adds the outcome of a further limit, of no shorter window.
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

// FromContext returns the decision on the request that has the context ctx, that of the
// innermost middleware if there are several. It returns false for a request that was not
// counted. Outcomes must not be changed.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(contextKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}
