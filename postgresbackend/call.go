package postgresbackend

import (
	"math/rand/v2"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// call is a call of a method of the backend. If it has several parts, they are takes, all or none.
type call struct {
	apply func(parts []part, t algorithm.Time) // does what the call is for to the records of the rows
	parts []part                               // their windows are the result
	err   error                                // errConflict: the call has not been counted
}

// part is what a call does with one row.
type part struct {
	count
	n      uint64
	row    *row          // of the present request
	window window.Window // the result
}

// count says which row a call is about, and by which rule it counts there.
type count struct {
	id
	rule algorithm.Rule
}

// newPart returns what a call does with the row of a key and limit. The limit has been checked.
func newPart(key string, l *window.Limit, n uint64) part {
	p := part{count: count{idOf(key, l), algorithm.RuleOf(l)}, n: n}
	p.rule.MaxLog = MaxLog
	return p
}

// decide computes the result of the call, and changes the records of its rows accordingly.
func (c *call) decide(t algorithm.Time) {
	for i := range c.parts {
		if c.err = c.parts[i].row.err; c.err != nil {
			return
		}
	}
	c.apply(c.parts, t)
}

// takeParts makes all takes or none, and sets the windows.
func takeParts(parts []part, t algorithm.Time) {
	fit := true
	for i := range parts {
		parts[i].call(algorithm.Peek, t)
		fit = fit && !parts[i].window.Refused
	}
	for i := range parts {
		if fit || len(parts) == 1 {
			parts[i].call(algorithm.Take, t)
		}
	}
}

// call makes a call for the record of the row, and sets the window. A Peek changes nothing. A take that does not fit
// gives the record the Max of its limit: a token bucket is refilled by it from now on.
func (p *part) call(v algorithm.Verb, t algorithm.Time) {
	before := p.row.record
	if v == algorithm.Set {
		p.row.end()
	}
	state := p.rule.Call(v, &p.row.record, t, p.n, rand.Uint64()|1)
	p.window = state.Window(t)
	after := &p.row.record
	adopted := !after.Empty() && (after.Max != before.Max || after.Holds != before.Holds)
	switch {
	case v == algorithm.Peek:
		*after = before
	case adopted, state.Wait == 0 && (p.n > 0 || !p.rule.Takes(v)):
		p.row.changed = true
	}
}
