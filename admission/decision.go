package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
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
	// RetryAfter is after which time the client should try again, if the request was denied or could not
	// be counted, with Config.Jitter. It is throttr.Never if waiting does not help.
	RetryAfter time.Duration
	// Shadow is Config.Shadow: the request is served, whatever the decision is.
	Shadow bool
	// Hold is the place of the request, see Config.InFlight. It is nil if there is no such limit, or the request was
	// denied, or the place could not be decided.
	Hold *inflight.Hold

	gate        *Gate
	plan        *Plan
	reservation *throttr.Reservation // of what was counted; or nil
	inFlight    *inFlight            // the limit on requests in flight; or nil
	noPlace     bool                 // there was no place
	hits        bool                 // it was counted as hits
	reserved    bool                 // it was counted without a reservation
	canceled    bool                 // it could not be counted, and its context has ended
	within      *admitted
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
		return fmt.Errorf("admission: the request was counted as hits, which can't be refunded: %w", throttr.ErrUnsupported)
	}
	if d.reserved {
		return d.within.cancel(ctx)
	}
	return d.reservation.Cancel(ctx)
}

// Done releases the place of the request. Only the first call does something. Adapters call it when the request
// has been served, also if its handler panics.
func (d Decision) Done() { d.Hold.Release() }

// Denied returns the outcomes of the limits that have denied the request.
func (d Decision) Denied() []Outcome {
	var denied []Outcome
	for i := range d.Outcomes {
		if !d.Outcomes[i].Allowed {
			denied = append(denied, d.Outcomes[i])
		}
	}
	if len(denied) == 0 && !d.Allowed { // without a place
		denied = append(denied, d.Strictest)
	}
	return denied
}

// Outcome is the result of one limit for a request.
type Outcome struct {
	Name  string        // of the limit
	Scale time.Duration // of the limit; 0: it is one on requests in flight
	// Result is Degraded if the backend has failed and a policy or a fallback has decided.
	throttr.Result
}

// Known reports whether the result describes a window. It does not if a policy has decided, if a request
// costs more than a limit can ever grant, so that no store was asked, or if the limit is Unlimited.
func (o *Outcome) Known() bool { return isKnown(&o.Result) }

func isKnown(res *throttr.Result) bool {
	return res.Limit != throttr.Unlimited && (res.Count > 0 || res.Remaining > 0 || res.Limit == 0)
}

// Left returns the time until the window ends, at most the whole scale; for a denial, RetryAfter. With
// rolling algorithms it is the time until the whole quota is there again.
func (o *Outcome) Left() time.Duration { return left(&o.Result, o.Scale) }

func left(res *throttr.Result, scale time.Duration) time.Duration {
	switch {
	case !res.Allowed:
		return res.RetryAfter
	case res.ResetAt.IsZero(): // there is no window, and the next request opens one
		return scale
	}
	return min(res.ResetAfter, scale)
}

// add adds the outcome of another limit, whose scale is not shorter than the last one's. It does not decide:
// Allowed is what the RateLimit says of all limits. Clients are not told of shadow limits.
func (d *Decision) add(l *throttr.Limit, res throttr.Result) {
	if l.Shadow {
		return
	}
	d.Outcomes = append(d.Outcomes, Outcome{l.Name, l.Scale, res})
	o, s := &d.Outcomes[len(d.Outcomes)-1], &d.Strictest
	none := s.Name == ""
	switch {
	case !o.Allowed:
		if none || s.Allowed || o.RetryAfter > s.RetryAfter {
			*s = *o
		}
	case o.Known() && (none || s.Allowed && o.Remaining <= s.Remaining):
		*s = *o
	}
}

// FromContext returns the decision on the request whose context is ctx. If several Gates have counted the
// request, it is the decision of the innermost one. FromContext returns false if the request was not
// counted. The caller must not modify Outcomes.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(contextKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}
