package admission

import (
	"context"
	"slices"
	"sync"

	"github.com/throttr-go/throttr"
)

// requestState is what a Gate knows of a request. It is the context of the handler, and has the decision.
type requestState struct {
	context.Context // that of Admit, or of the place
	gate            *Gate
	decision        Decision
	limits          []limitState // those that apply, but for the one on requests in flight
	place           *limitState  // the one on requests in flight; nil: none applies

	room struct { // for what one limit needs: such a request is one allocation
		limits   [1]limitState
		outcomes [1]Outcome
	}

	mu          sync.Mutex           // guards what follows, and charge of limits
	reservation *throttr.Reservation // of what was counted; nil: nothing is given back any more
	committed   bool                 // Commit has changed a charge, which is not settled yet
	over        bool                 // Done was called
}

// limitState is what a Gate knows of a request in one limit.
type limitState struct {
	*planned
	key    Key             // Plain if it is stored as it is
	cost   uint64          // what the request costs
	result *throttr.Result // nil: the request could not be counted
	charge uint64          // what the request is charged: 0 if it could not be counted, or was given back
}

// isCounted reports whether something was counted, and not only answered by a policy.
func isCounted(res *throttr.Result) bool { return !res.Degraded || res.Count > 0 }

// begin returns what is known of a request before it is decided: it is allowed.
func (g *Gate) begin(ctx context.Context, r *Request) *requestState {
	s := &requestState{Context: ctx, gate: g}
	s.decision = Decision{Allowed: true, state: s}
	all, inFlight := g.limitsOf(r)
	s.limits = slices.Grow(s.room.limits[:0], len(all))
	for i := range all {
		if l, ok := g.limitOf(r, &all[i]); ok {
			s.limits = append(s.limits, l)
		}
	}
	if inFlight != nil {
		if l, ok := g.limitOf(r, inFlight); ok {
			s.place = &l
		}
	}
	return s
}

// limitOf returns what is known of a request in a limit, and false if the limit does not apply to it.
func (g *Gate) limitOf(r *Request, p *planned) (l limitState, ok bool) {
	key, ok := g.keyOf(r, p.limit.Name)
	if !ok {
		return l, false
	}
	l = limitState{planned: p, key: key, cost: 1}
	l.key.Plain = g.isPlain(key)
	if r.Cost != nil && p.places == nil {
		l.cost = r.Cost(p.limit)
	}
	return l, l.cost > 0
}

// exempt reports whether no limit applies to the request.
func (s *requestState) exempt() bool { return len(s.limits) == 0 && s.place == nil }

type contextKey struct{}

// Value returns the decision, or a value of the parent.
func (s *requestState) Value(key any) any {
	if key == (contextKey{}) {
		return &s.decision
	}
	return s.Context.Value(key)
}
