package memory

// sizes are those of records, the first so that one with a key of up to 27 bytes is a cache
// line.
var sizes = [...]uint32{64, 96, 128, 168}

// tables are a shard's, one for each size of records.
type tables [len(sizes)]table

func newTables() (ts tables) {
	for i := range ts {
		ts[i].size = sizes[i]
	}
	return ts
}

// of returns the table for records with a key.
func (ts *tables) of(key string) *table {
	c := 0
	for keyAt+len(key) > int(sizes[c]) {
		c++
	}
	return &ts[c]
}

// len returns how many records there are.
func (ts *tables) len() (n int) {
	for i := range ts {
		n += ts[i].n
	}
	return n
}

// holding returns the table that has the nth record.
func (ts *tables) holding(nth int) *table {
	c := 0
	for nth >= ts[c].n {
		nth -= ts[c].n
		c++
	}
	return &ts[c]
}

// compact gives memory back if most of a table's is not in use.
func (ts *tables) compact() {
	for i := range ts {
		ts[i].compact()
	}
}

// cursor goes through the places of tables, from the last to the first: the way that
// records move when one is removed, so that what moves up to it has been seen. The zero
// cursor has all before it.
type cursor struct {
	table int
	left  int // places before it
	of    int // how many there were; when it is another number, it starts afresh
}

// next returns the next place, free or taken, and its table, or nil after the last.
func (c *cursor) next(ts *tables) (*table, int) {
	for ; c.table < len(ts); *c = (cursor{table: c.table + 1}) {
		t := &ts[c.table]
		if c.of != len(t.tags) {
			c.left, c.of = len(t.tags), len(t.tags)
		}
		if c.left > 0 {
			c.left--
			return t, c.left
		}
	}
	return nil, 0
}
