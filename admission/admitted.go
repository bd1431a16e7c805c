package admission

import (
	"context"
	"sync/atomic"
	"time"
)

// admitted is what a Gate remembers of a request, in one allocation. It is a context with the decision.
type admitted struct {
	parent   context.Context
	decision Decision
	key      string           // as it is stored
	n        uint64           // what the request counts
	ids      [fewLimits]int64 // of the windows, if it was reserved
	settled  atomic.Bool
	one      [1]Outcome // of a plan with one limit
}

// fewLimits is up to how many limits the RateLimit makes no Reservation for.
const fewLimits = 4

type contextKey struct{}

// Context returns the context of Admit with the decision, for [FromContext]. It also ends when the request loses
// its place: then [context.Cause] is [inflight.ErrLost]. Handlers are called with it.
func (d *Decision) Context() context.Context { return d.within }

// Deadline implements [context.Context].
func (a *admitted) Deadline() (time.Time, bool) { return a.parent.Deadline() }

// Done implements [context.Context].
func (a *admitted) Done() <-chan struct{} { return a.parent.Done() }

// Err implements [context.Context].
func (a *admitted) Err() error { return a.parent.Err() }

// Value returns the decision, or a value of the parent.
func (a *admitted) Value(key any) any {
	if key == (contextKey{}) {
		return &a.decision
	}
	return a.parent.Value(key)
}

// begin returns what is known of a request before it is decided: it is allowed. Stored is its key in the backend.
func (g *Gate) begin(ctx context.Context, key, stored string, plan *Plan, n uint64) *admitted {
	a := &admitted{parent: ctx, key: stored, n: n}
	d := &a.decision
	d.Key, d.Allowed, d.Shadow, d.gate, d.plan, d.within = key, true, g.cfg.Shadow, g, plan, a
	if d.Outcomes = a.one[:0]; len(plan.limits) > 1 {
		d.Outcomes = make([]Outcome, 0, len(plan.limits))
	}
	return a
}

// end sets what follows from the decision. Ctx is that of the request.
func (a *admitted) end(ctx context.Context) {
	d := &a.decision
	d.canceled = d.Err != nil && hasEnded(ctx)
	d.RetryAfter = d.gate.retryAfter(d)
}

// hasEnded reports whether ctx has been canceled, or its deadline has passed. The timer of a deadline may be late.
func hasEnded(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
