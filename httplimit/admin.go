package httplimit

import (
	"context"
	"errors"
	"net/http"

	"github.com/throttr-go/throttr"
)

// Middleware limits the requests to the handlers that it wraps. These handlers share the limits.
// Make one with [NewMiddleware]. It is safe for concurrent use.
type Middleware struct{ m *middleware }

// Wrap returns a handler that limits the requests to next. It panics if next is nil.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: the handler to wrap is nil")
	}
	return &handler{middleware: m.m, next: next}
}

// Peek returns the state of the limits of a key without counting, in the order of the limits:
// whether a request of cost 1 would be allowed now, and how many were counted. The key is what
// Config.Key returns for the requests in question. Without limits, Peek returns those of
// Config.Limits. Use it to answer a customer who is denied:
//
//	outcomes, err := m.Peek(ctx, httplimit.HeaderKey("X-Api-Key", apiKey))
//
// The error is that of the backend.
func (m *Middleware) Peek(ctx context.Context, key string, limits ...throttr.Limit) ([]Outcome, error) {
	plan, err := m.planOf(limits)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, 0, len(plan.limits))
	for _, l := range plan.limits {
		res, err := m.m.limiter.Peek(ctx, m.m.storedKey(key), l, 1)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, Outcome{l.Name, l.Scale, res})
	}
	return outcomes, nil
}

// Reset ends the windows of a key, so that its next request opens others. The key and the limits
// are those of [Middleware.Peek]. On Throttr servers, other processes may deny for up to a second
// more, see [throttr.WithDenialMemory]. The error has those of all limits that could not be reset.
func (m *Middleware) Reset(ctx context.Context, key string, limits ...throttr.Limit) error {
	plan, err := m.planOf(limits)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range plan.limits {
		errs = append(errs, m.m.limiter.Forget(ctx, m.m.storedKey(key), l))
	}
	return errors.Join(errs...)
}

// planOf returns a plan of limits, or that of Config.Limits if there are none.
func (m *Middleware) planOf(limits []throttr.Limit) (*Plan, error) {
	if len(limits) == 0 {
		return m.m.plan, nil
	}
	return NewPlan(limits...)
}
