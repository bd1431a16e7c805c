package memory

import (
	"math/bits"
	"time"
)

// id is what a window is known by.
type id struct {
	key   string
	scale time.Duration
	hash  uint32 // of both
}

// table finds records by id. The index has a slot for each: the hash, and where the record
// is, in a slot that follows the one that the hash points to, with no empty one between
// them. Hashes are compared before records, which may be far away.
type table struct {
	index []slot // a power of two, at most three quarters in use
	slabs [4]slab
	n     int
}

// slot is a hash in the upper half, and a ref in the lower; 0: none.
type slot uint64

// ref is where a record is: one more than its number, and in the lowest two bits, its class.
type ref uint32

// mostRecords is how many records a ref can tell apart.
const mostRecords = 1 << 29

func refOf(number uint32, c class) ref { return ref(number+1)<<2 | ref(c) }

func (s slot) hash() uint32   { return uint32(s >> 32) }
func (s slot) class() class   { return class(s & 3) }
func (s slot) number() uint32 { return uint32(s)>>2 - 1 }

func slotOf(hash uint32, r ref) slot { return slot(hash)<<32 | slot(r) }

// newTable returns an empty table with room for n records.
func newTable(n int) table {
	return table{index: make([]slot, max(8, 1<<bits.Len(uint(n+n/3))))}
}

func (t *table) record(s slot) record { return t.slabs[s&3].at(s.number(), s.class()) }

// find returns the record of k and its place in the index, or nil.
func (t *table) find(k id) (record, uint32) {
	mask := uint32(len(t.index) - 1)
	for i := k.hash & mask; ; i = (i + 1) & mask {
		s := t.index[i]
		if s == 0 {
			return nil, 0
		}
		if s.hash() != k.hash {
			continue
		}
		if r := t.record(s); r.scale() == k.scale && string(r.key()) == k.key {
			return r, i
		}
	}
}

// insert returns a new record for k, of which there is none.
func (t *table) insert(k id) record {
	if t.n++; t.n > len(t.index)/4*3 {
		old := t.index
		t.index = make([]slot, 2*len(old))
		for _, s := range old {
			if s != 0 {
				t.place(s)
			}
		}
	}
	c := classOf(k.key)
	s := slotOf(k.hash, refOf(t.slabs[c].take(c), c))
	t.place(s)
	r := t.record(s)
	r.setKey(k.key)
	return r
}

// place puts s where find will find it.
func (t *table) place(s slot) {
	mask := uint32(len(t.index) - 1)
	i := s.hash() & mask
	for t.index[i] != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = s
}

// remove removes the record whose place in the index is i. Those that follow move up, as
// long as they are not in the slot that their hash points to.
func (t *table) remove(i uint32) {
	s := t.index[i]
	t.slabs[s.class()].giveBack(s.number(), s.class())
	t.n--
	mask := uint32(len(t.index) - 1)
	for j := (i + 1) & mask; t.index[j] != 0; j = (j + 1) & mask {
		home := t.index[j].hash() & mask
		if (j-home)&mask >= (j-i)&mask {
			t.index[i] = t.index[j]
			i = j
		}
	}
	t.index[i] = 0
}

// compact gives memory back if most of it is not in use.
func (t *table) compact() {
	held := 0
	for i := range t.slabs {
		held += int(t.slabs[i].used)
	}
	if held < 4*t.n+chunk {
		return
	}
	small := newTable(t.n)
	small.n = t.n
	for _, s := range t.index {
		if s == 0 {
			continue
		}
		to := slotOf(s.hash(), refOf(small.slabs[s.class()].take(s.class()), s.class()))
		copy(small.record(to), t.record(s))
		small.place(to)
	}
	*t = small
}

// where returns the place in the index of a ref, which is there with the given hash.
func (t *table) where(hash uint32, r ref) uint32 {
	mask := uint32(len(t.index) - 1)
	i := hash & mask
	for t.index[i] != slotOf(hash, r) {
		i = (i + 1) & mask
	}
	return i
}

// cursor is a place among a table's records. The zero cursor is before the first.
type cursor struct {
	class  class
	number uint32
}

// next returns the next record, or nil after the last. It may be one that is not in use.
func (t *table) next(c *cursor) (record, ref) {
	for ; int(c.class) < len(t.slabs); c.class, c.number = c.class+1, 0 {
		if s := &t.slabs[c.class]; c.number < s.used {
			c.number++
			return s.at(c.number-1, c.class), refOf(c.number-1, c.class)
		}
	}
	return nil, 0
}
