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

// call is a call of a method of the backend. If it has several ops, they are takes, all or none.
type call struct {
	apply func(ops []op, t algorithm.Time) // does what the call is for to the records of the rows
	ops   []op                             // their windows are the result
	err   error                            // if it is errConflict, the call can be made again
}

// op is what a call does with one row.
type op struct {
	id
	rule   algorithm.Rule // by which it counts there
	n      uint64
	row    *row          // of the present request
	window window.Window // the result
}

// newOp returns what a call does with the row of a key and limit. The limit has been checked.
func newOp(key string, l *window.Limit, n uint64) op {
	o := op{id: idOf(key, l), rule: algorithm.RuleOf(l), n: n}
	o.rule.MaxLog = MaxLog
	return o
}

// rowError returns the error of one of its rows.
func (c *call) rowError() error {
	for i := range c.ops {
		if err := c.ops[i].row.err; err != nil {
			return err
		}
	}
	return nil
}

// takeOps makes all takes or none, and sets the windows.
func takeOps(ops []op, t algorithm.Time) {
	fit := true
	for i := range ops {
		ops[i].decide(algorithm.Peek, t)
		fit = fit && !ops[i].window.Refused
	}
	for i := range ops {
		if fit || len(ops) == 1 {
			ops[i].decide(algorithm.Take, t)
		}
	}
}

// decide makes a call for the record of the row, and sets the window. A Peek changes nothing. A take that does not fit
// gives the record the Max of its limit: a token bucket is refilled by it from now on.
func (o *op) decide(v algorithm.Verb, t algorithm.Time) {
	before := o.row.record
	state := o.rule.Call(v, &o.row.record, t, o.n, rand.Uint64()|1)
	o.window = state.Window(t)
	after := &o.row.record
	adopted := !after.Empty() && (after.Max != before.Max || after.Capacity != before.Capacity)
	counted := state.Wait == 0 && (o.n > 0 || !o.rule.Takes(v)) // a take of nothing opens no window
	switch {
	case v == algorithm.Peek:
		*after = before
	case v == algorithm.Set, adopted, counted:
		o.row.changed = true
	}
}

// row is a row of the table in a request.
type row struct {
	id
	rule    algorithm.Rule // of any of its ops: what is asked of it here is the same for all
	record  algorithm.Record
	err     error // what is stored is no record, or errConflict
	before  int64 // the version that was read; 0: there is no row
	version int64 // the version that is written
	changed bool  // the record is not what was read: it has to be written
}

// rowsOf returns the rows of some calls, in the order of their ids, and sets those of their ops.
func rowsOf(calls []*batched) []*row {
	var ops []*op
	for _, c := range calls {
		for i := range c.Value.ops {
			ops = append(ops, &c.Value.ops[i])
		}
	}
	slices.SortFunc(ops, func(o, q *op) int {
		return cmp.Or(strings.Compare(o.key, q.key), strings.Compare(o.limit, q.limit))
	})
	var rows []*row
	for _, o := range ops {
		if len(rows) == 0 || rows[len(rows)-1].id != o.id {
			rows = append(rows, &row{id: o.id, rule: o.rule})
		}
		o.row = rows[len(rows)-1]
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
