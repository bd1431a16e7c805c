package postgresbackend

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// call is a call of a method of the backend. If it has several parts, they are takes, all or none.
type call struct {
	apply func(parts []part, t algorithm.Time) // does what the call is for to the records of the rows
	parts []part                               // their windows are the result
	err   error                                // if it is errConflict, the call can be made again
}

// part is what a call does with one row.
type part struct {
	id
	rule   algorithm.Rule // by which it counts there
	n      uint64
	row    *row          // of the present request
	window window.Window // the result
}

// newPart returns what a call does with the row of a key and limit. The limit has been checked.
func newPart(key string, l *window.Limit, n uint64) part {
	p := part{id: idOf(key, l), rule: algorithm.RuleOf(l), n: n}
	p.rule.MaxLog = MaxLog
	return p
}

// rowError returns the error of one of its rows.
func (c *call) rowError() error {
	for i := range c.parts {
		if err := c.parts[i].row.err; err != nil {
			return err
		}
	}
	return nil
}

// takeParts makes all takes or none, and sets the windows.
func takeParts(parts []part, t algorithm.Time) {
	fit := true
	for i := range parts {
		parts[i].decide(algorithm.Peek, t)
		fit = fit && !parts[i].window.Refused
	}
	for i := range parts {
		if fit || len(parts) == 1 {
			parts[i].decide(algorithm.Take, t)
		}
	}
}

// decide makes a call for the record of the row, and sets the window. A Peek changes nothing. A take that does not fit
// gives the record the Max of its limit: a token bucket is refilled by it from now on.
func (p *part) decide(v algorithm.Verb, t algorithm.Time) {
	before := p.row.record
	state := p.rule.Call(v, &p.row.record, t, p.n, rand.Uint64()|1)
	p.window = state.Window(t)
	after := &p.row.record
	adopted := !after.Empty() && (after.Max != before.Max || after.Holds != before.Holds)
	counted := state.Wait == 0 && (p.n > 0 || !p.rule.Takes(v)) // a take of nothing opens no window
	switch {
	case v == algorithm.Peek:
		*after = before
	case v == algorithm.Set, adopted, counted:
		p.row.changed = true
	}
}

// row is a row of the table in a request.
type row struct {
	id
	rule    algorithm.Rule // of any of its parts: what is asked of it here is the same for all
	record  algorithm.Record
	err     error // what is stored is no record, or errConflict
	before  int64 // the version that was read; 0: there is no row
	version int64 // the version that is written
	changed bool  // the record is not what was read: it has to be written
}

// rowsOf returns the rows of some calls, in the order of their ids, and sets those of their parts.
func rowsOf(calls []*batched) []*row {
	var parts []*part
	for _, c := range calls {
		for i := range c.Value.parts {
			parts = append(parts, &c.Value.parts[i])
		}
	}
	slices.SortFunc(parts, func(p, q *part) int {
		return cmp.Or(strings.Compare(p.key, q.key), strings.Compare(p.limit, q.limit))
	})
	var rows []*row
	for _, p := range parts {
		if len(rows) == 0 || rows[len(rows)-1].id != p.id {
			rows = append(rows, &row{id: p.id, rule: p.rule})
		}
		p.row = rows[len(rows)-1]
	}
	return rows
}

// load sets the record to what was read at a time. It starts then if the clock has gone back by more than a scale.
func (r *row) load(state []byte, version int64, t algorithm.Time) {
	record, err := r.rule.How.ReadBinary(state)
	r.err = nil // of an attempt before
	if err != nil {
		r.err = unreadable(err)
	}
	r.record = record
	r.before = version
	r.changed = r.rule.Restart(&r.record, t)
}

// idColumns returns the ids of some rows as columns of the table.
func idColumns(rows []*row) []any {
	var keys, lims [][]byte
	for _, r := range rows {
		keys = append(keys, []byte(r.key))
		lims = append(lims, []byte(r.limit))
	}
	return []any{keys, lims}
}

// columns gives some rows new versions, and returns the rows as columns of the table.
func columns(rows []*row, t algorithm.Time) []any {
	var ends, versions, before []int64
	var states [][]byte
	for _, r := range rows {
		r.version = 1 + rand.Int64N(1<<62)
		left := int64(max(r.rule.Left(&r.record, t), 0))
		ends = append(ends, t.Now+min(left, math.MaxInt64-max(t.Now, 0)))
		versions = append(versions, r.version)
		before = append(before, r.before)
		states = append(states, r.record.AppendBinary(make([]byte, 0, 64)))
	}
	return append(idColumns(rows), ends, versions, before, states)
}
