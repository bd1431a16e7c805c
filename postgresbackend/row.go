package postgresbackend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/throttr-go/throttr/internal/algorithm"
)

// row is a row of the table in a request.
type row struct {
	count
	record   algorithm.Record
	err      error // what is stored is no record
	before   int64 // the version that was read; 0: there is no row
	version  int64 // the version that is written
	changed  bool  // the record is not what was read: it has to be written
	conflict bool  // another process has changed the row since it was read
}

// rowsOf returns the rows of some calls, in the order of their ids, and sets those of their parts.
func rowsOf(calls []*call) []*row {
	var rows []*row
	known := make(map[id]*row, len(calls))
	for _, c := range calls {
		for i := range c.parts {
			p := &c.parts[i]
			p.row = known[p.id]
			if p.row == nil {
				p.row = &row{count: p.count}
				known[p.id] = p.row
				rows = append(rows, p.row)
			}
		}
	}
	slices.SortFunc(rows, func(r, s *row) int { return r.compare(s.id) })
	return rows
}

// load sets the record to what was read at a time. It starts then if the clock has gone back by more than a scale.
func (r *row) load(state []byte, version int64, t algorithm.Time) {
	*r = row{count: r.count, before: version}
	r.record, r.err = r.rule.How.ReadBinary(state)
	if r.err != nil {
		r.err = fmt.Errorf("%w: %w", errRow, r.err)
		return
	}
	r.changed = r.rule.Restart(&r.record, t)
}

// end makes the record count nothing.
func (r *row) end() {
	if !r.record.Empty() {
		r.record.End()
		r.changed = true
	}
}

// ends returns when nothing counts any more, in nanoseconds since 1970.
func (r *row) ends(t algorithm.Time) int64 {
	left := max(r.rule.Left(&r.record, t), 0)
	return t.Now + min(int64(left), math.MaxInt64-max(t.Now, 0))
}

// idColumns returns the ids of some rows as columns of the table.
func idColumns(rows []*row) (keys, limits [][]byte) {
	keys = make([][]byte, len(rows))
	limits = make([][]byte, len(rows))
	for i, r := range rows {
		keys[i] = []byte(r.key)
		limits[i] = []byte(r.limit)
	}
	return keys, limits
}

// columns gives some rows new versions, and returns the rows as columns of the table.
func columns(rows []*row, t algorithm.Time) []any {
	n := len(rows)
	ends := make([]int64, n)
	versions := make([]int64, n)
	before := make([]int64, n)
	states := make([][]byte, n)
	for i, r := range rows {
		r.version = 1 + rand.Int64N(1<<62)
		ends[i] = r.ends(t)
		versions[i] = r.version
		before[i] = r.before
		states[i] = r.record.AppendBinary([]byte{})
	}
	keys, limits := idColumns(rows)
	return []any{keys, limits, ends, versions, before, states}
}
