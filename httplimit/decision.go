package httplimit

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
)

// Decision is the decision on a request.
type Decision struct {
	Key     string // the key under which the request was counted; may be empty
	Allowed bool   // no limit has denied the request
	// Strictest is the outcome of the limit that has denied the request, and of several the one
	// with the longest RetryAfter. If none has, it is the outcome with the least remaining, and
	// of two with the same remaining the one with the longer scale. It is the zero Outcome if
	// the backend has failed for all limits, or all are Unlimited.
	Strictest Outcome
	// Outcomes are those of all limits, the shortest scale first. With Config.CountRefusals, they
	// are those in which the request was counted, up to the one that has denied it.
	Outcomes []Outcome
	// Err says why the request could not be counted in some limits. It is nil if it was
	// counted in all of them, or denied.
	Err error

	reservation *throttr.Reservation // of what was counted; nil: it was counted as hits, or not at all
	hits        bool                 // it was counted as hits
}

// Refund gives back what the request was counted, for requests that should not count after all:
// for example to limit failed logins only. Only the first call does something, and only if the
// request was counted in windows that are still open. It does not depend on the end of ctx.
//
// Responses have their header fields from before. If the request was counted as hits, the error
// matches [throttr.ErrUnsupported]: see Config.CountRefusals. Other errors are those of the backend;
// then the request may stay counted.
func (d Decision) Refund(ctx context.Context) error {
	if d.hits && d.Allowed && len(d.Outcomes) > 0 {
		return fmt.Errorf("httplimit: the request was counted as hits, which can't be refunded: %w", throttr.ErrUnsupported)
	}
	return d.reservation.Cancel(ctx)
}

// Outcome is the result of one limit for a request.
type Outcome struct {
	Name  string        // of the limit
	Scale time.Duration // of the limit
	// Result is Degraded if the backend has failed and a policy or a fallback has decided.
	throttr.Result
}

// known reports whether the result describes a window. It does not if a policy has decided, if a request
// costs more than a limit can ever grant, so that no store was asked, or if the limit is Unlimited.
func (o *Outcome) known() bool {
	return o.Limit != throttr.Unlimited && (o.Count > 0 || o.Remaining > 0 || o.Limit == 0)
}

// add adds the outcome of another limit, whose scale is not shorter than the last one's. It does not decide:
// Allowed is what the RateLimit says of all limits.
func (d *Decision) add(l throttr.Limit, res throttr.Result) {
	o := Outcome{l.Name, l.Scale, res}
	d.Outcomes = append(d.Outcomes, o)
	s := &d.Strictest
	none := s.Name == ""
	switch {
	case !o.Allowed:
		if none || s.Allowed || o.RetryAfter > s.RetryAfter {
			*s = o
		}
	case o.known() && (none || s.Allowed && o.Remaining <= s.Remaining):
		*s = o
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
