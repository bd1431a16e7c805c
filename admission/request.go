package admission

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/inside"
)

func init() { inside.Add(func(g *Gate) any { return (*requests)(g) }) }

// requests is a Gate as package httplimit uses it.
type requests Gate

// granted is a request that was granted at once, as most are: in one allocation, the copy of the request that the
// handler gets, and what a decision is made of if somebody asks for it. It is the context of the copy.
type granted struct {
	parent   context.Context
	gate     *Gate
	plan     *Plan
	key      string
	n        uint64
	limits   []counted // those of the plan
	one      [1]counted
	asked    sync.Once // for the decision
	decision *admitted
	fields   [2]string // RateLimit-Policy and RateLimit
	request  http.Request
}

// counted is what has become of a request in a limit.
type counted struct {
	id  int64
	res throttr.Result
}

// Admit is [Gate.Admit] for a request. If it is granted at once, next is a copy of it, whose context has the
// decision, and d is nil. Fields are the values of RateLimit-Policy and RateLimit, if these are wanted.
func (rs *requests) Admit(r *http.Request, key string, plan *Plan, n uint64, wanted bool) (next *http.Request, fields *[2]string, d *Decision) {
	g := (*Gate)(rs)
	if plan == nil {
		plan = g.plan
	}
	if n == 0 || !g.atOnce || !plan.atOnce || plan.inFlight != nil {
		return nil, nil, g.Admit(r.Context(), key, plan, n)
	}
	x := &granted{parent: r.Context(), gate: g, plan: plan, key: key, n: n}
	if x.limits = x.one[:0]; len(plan.limits) != 1 {
		x.limits = make([]counted, 0, len(plan.limits))
	}
	prefix, rest := g.storedParts(key)
	var text strings.Builder // of the stored key, and then of RateLimit: one allocation
	size := len(prefix) + len(rest)
	if wanted {
		size += plan.room
	}
	text.Grow(size)
	text.WriteString(prefix)
	text.WriteString(rest)
	stored := text.String()
	rv, ok, err := g.reserve.Reserve(x.parent, stored, plan.limits, n, x)
	if !ok || rv != nil {
		a := g.begin(x.parent, key, stored, plan, n)
		x.tell(a)
		a.took(rv, ok, err)
		a.end(x.parent)
		return nil, nil, &a.decision
	}
	if wanted {
		var buf [128]byte
		text.Write(x.appendLimits(buf[:0]))
		x.fields[0], x.fields[1] = plan.policy[g.unit], text.String()[len(stored):]
	}
	x.request = *r.WithContext(x) // to copy it twice takes less time than to allocate it
	return &x.request, &x.fields, nil
}

// Reserved adds the result of a limit, for a reserver.
func (x *granted) Reserved(_ int, id int64, res throttr.Result) {
	x.limits = append(x.limits, counted{id, res})
}

// tell tells what has become of the request in the limits.
func (x *granted) tell(a *admitted) {
	for i := range x.limits {
		a.Reserved(i, x.limits[i].id, x.limits[i].res)
	}
}

// appendLimits appends the RateLimit field.
func (x *granted) appendLimits(b []byte) []byte {
	for i := range x.limits {
		if res := &x.limits[i].res; isKnown(res) {
			b = appendItem(b, x.plan.items[i], x.plan.limits[i].Scale, res)
		}
	}
	return b
}

// Deadline implements [context.Context].
func (x *granted) Deadline() (time.Time, bool) { return x.parent.Deadline() }

// Done implements [context.Context].
func (x *granted) Done() <-chan struct{} { return x.parent.Done() }

// Err implements [context.Context].
func (x *granted) Err() error { return x.parent.Err() }

// Value returns the decision, or a value of the parent.
func (x *granted) Value(key any) any {
	if key != (contextKey{}) {
		return x.parent.Value(key)
	}
	x.asked.Do(func() {
		x.decision = x.gate.begin(x.parent, x.key, x.gate.storedKey(x.key), x.plan, x.n)
		x.tell(x.decision)
		x.decision.decision.reserved = true
	})
	return &x.decision.decision
}
