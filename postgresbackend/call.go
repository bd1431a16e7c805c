package postgresbackend

import (
	"math/rand/v2"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// verb is what a call does with a record. Its text is the name of the call.
type verb string

const (
	hit      verb = "hit"
	take     verb = "take"
	charge   verb = "charge"
	peek     verb = "peek"
	set      verb = "set"
	giveBack verb = "give back"
	reset    verb = "reset"
)

// count says which row a call is about, and by which rule it counts there.
type count struct {
	id
	algorithm *algorithm.Algorithm
	rule      algorithm.Rule
}

// part is what a call does with one row.
type part struct {
	count
	n      uint64
	row    *row          // of the present request
	window window.Window // the result
}

// call is a call of a method of the backend. If it has several parts, they are takes, all or none.
type call struct {
	verb   verb
	parts  []part // their windows are the result
	takeID int64  // of the take that is given back
	given  bool   // the result of that
	err    error  // errConflict: the call has not been counted
}

// newPart returns what a call does with the row of a key and limit. The limit has been checked.
func newPart(key string, l *window.Limit, n uint64) part {
	c := count{id: idOf(key, l), algorithm: algorithm.Of(l.Algorithm), rule: algorithm.RuleOf(l)}
	return part{count: c, n: n}
}

// decide computes the result of the call, and changes the records of its rows accordingly.
func (c *call) decide(t algorithm.Time) {
	for i := range c.parts {
		if c.err = c.parts[i].row.err; c.err != nil {
			return
		}
	}
	if len(c.parts) > 1 && !c.allFit(t) {
		return
	}
	for i := range c.parts {
		c.apply(&c.parts[i], t)
	}
}

// allFit reports whether all takes would be granted. It sets the windows to what is counted without them.
func (c *call) allFit(t algorithm.Time) bool {
	fit := true
	for i := range c.parts {
		p := &c.parts[i]
		p.describe(p.peek(t, p.n), t)
		fit = fit && !p.window.Refused
	}
	return fit
}

// apply applies the verb to the record of a part.
func (c *call) apply(p *part, t algorithm.Time) {
	switch r := p.row; {
	case c.verb == peek:
		p.describe(p.peek(t, p.n), t)
	case c.verb == take, c.verb == hit && p.algorithm.Rolling:
		p.take(t)
	case c.verb == giveBack:
		c.given = p.algorithm.GiveBack(&r.record, &p.rule, &t, c.takeID, p.n)
		r.changed = r.changed || c.given
	case c.verb == reset:
		r.end()
	case c.verb == set:
		r.end()
		fallthrough
	default:
		p.charge(t)
	}
}

// peek returns what a take of n would, and changes nothing.
func (p *part) peek(t algorithm.Time, n uint64) algorithm.State {
	scratch := p.row.record
	return p.algorithm.Peek(&scratch, &p.rule, &t, n)
}

// take counts n if it fits. If it does not, and the limit has another Max than the record, the record gets that: a
// token bucket is refilled by it from now on.
func (p *part) take(t algorithm.Time) {
	before := p.row.record.Rule()
	state := p.algorithm.Take(&p.row.record, &p.rule, &t, p.n, newSeries())
	if state.Wait == 0 && p.n > 0 || before != p.row.record.Rule() && !p.row.record.Empty() {
		p.row.changed = true
	}
	p.describe(state, t)
}

// charge counts n, whatever the limit is.
func (p *part) charge(t algorithm.Time) {
	n := p.n
	if p.algorithm.Logs {
		n = min(n, MaxLog-min(MaxLog, p.peek(t, p.n).Count))
	}
	state := p.algorithm.Charge(&p.row.record, &p.rule, &t, n, newSeries())
	p.row.changed = true
	p.describe(state, t)
}

// describe sets the window to a state of the record.
func (p *part) describe(s algorithm.State, t algorithm.Time) {
	s.Describe(&t, &p.window)
}

// newSeries returns a number that no other call has.
func newSeries() uint64 { return rand.Uint64() | 1 }
