package httplimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	// the backend has failed for all limits.
	Strictest Outcome
	// Outcomes are those of all limits, the shortest scale first. With Config.CountRefusals, they
	// are those in which the request was counted, up to the one that has denied it.
	Outcomes []Outcome
	// Err says why the request could not be counted in some limits. It is nil if it was
	// counted in all of them, or denied.
	Err error

	reservations []*throttr.Reservation // of what was counted; none: it was counted as hits
}

// Refund gives back what the request was counted, for requests that should not count after all:
// for example to limit failed logins only. Only the first call does something, and only if the
// request was counted in windows that are still open. It does not depend on the end of ctx.
//
// Responses have their header fields from before. If the request was counted as hits, the error
// matches [errors.ErrUnsupported]: see Config.CountRefusals. Other errors are those of the backend;
// then the request may stay counted.
func (d Decision) Refund(ctx context.Context) error {
	switch {
	case len(d.reservations) > 0:
		return d.cancel(ctx)
	case len(d.Outcomes) == 0 || !d.Allowed:
		return nil
	}
	return fmt.Errorf("httplimit: the request was counted as hits, which can't be refunded: %w", errors.ErrUnsupported)
}

// cancel gives back all that was taken, at the same time: a backend that does not respond must not hold up the
// others.
func (d *Decision) cancel(ctx context.Context) error {
	errs := make([]error, len(d.reservations))
	var all sync.WaitGroup
	for i, rv := range d.reservations {
		all.Go(func() { errs[i] = rv.Cancel(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// giveBack is cancel for a request that does not count. If ctx ends, it returns, and goes on. What can't be
// given back stays counted until the windows end.
func (d *Decision) giveBack(ctx context.Context) {
	if len(d.reservations) == 0 {
		return
	}
	taken, done := *d, make(chan struct{})
	go func() {
		taken.cancel(ctx)
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
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

// add adds the outcome of another limit, whose scale is not shorter than the last one's. It does not decide:
// Allowed is what the RateLimit says of all limits.
func (d *Decision) add(o Outcome) {
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
