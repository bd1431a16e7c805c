package memory

// sizes are the sizes of records. A record of the first size, with a key of up to 26 bytes, is
// a cache line. The last size is that of shared records: see shared.go.
var sizes = [...]uint32{64, 96, 128, 168, keyOffset + maxKey + 1 + 64, keyOffset + sharedKeyLen + 1 + 64}

// sharedKeyLen is the length of the keys of shared records, which are numbers.
const sharedKeyLen = 4

// tables are the tables of a shard, one for each size of records.
type tables [len(sizes)]table

func newTables() (ts tables) {
	for i := range ts {
		ts[i].size = sizes[i]
	}
	return ts
}

// of returns the table for the records of k.
func (ts *tables) of(k *id) *table {
	if k.kind&shared != 0 {
		return ts.shared()
	}
	i, size := 0, k.size()
	for size > int(sizes[i]) {
		i++
	}
	return &ts[i]
}

// shared returns the table of shared records.
func (ts *tables) shared() *table { return &ts[len(ts)-1] }

// len returns the number of records that are not shared.
func (ts *tables) len() (n int) {
	for i := range len(ts) - 1 {
		n += ts[i].n
	}
	return n
}

// ofNth returns the table that has the nth record that is not shared.
func (ts *tables) ofNth(nth int) *table {
	i := 0
	for nth >= ts[i].n {
		nth -= ts[i].n
		i++
	}
	return &ts[i]
}

// compact frees the memory of tables that are mostly unused.
func (ts *tables) compact() {
	for i := range ts {
		ts[i].compact()
	}
}

// cursor iterates over the slots of tables, each table from its last slot to its first. If a record
// is removed, records after it fill its slot: they have been visited. The zero cursor is at the
// start.
type cursor struct {
	table     int
	remaining int // slots of the table that have not been visited
	slots     int // slots of the table; if their number changes, all are visited again
}

// next returns the next slot, free or in use, and its table, or nil after the last one.
func (c *cursor) next(ts *tables) (*table, int) {
	for ; c.table < len(ts); *c = (cursor{table: c.table + 1}) {
		t := &ts[c.table]
		if c.slots != len(t.tags) {
			c.remaining, c.slots = len(t.tags), len(t.tags)
		}
		if c.remaining > 0 {
			c.remaining--
			return t, c.remaining
		}
	}
	return nil, 0
}
