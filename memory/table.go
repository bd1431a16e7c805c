package memory

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// table is a hash table of records. Eight cells each are a group, with a word that has a tag for each of
// them: a byte that differs for most records, and is 0 if the cell is free. A record is in the group that its
// hash selects, or in one of the groups after it, with no free cell in between. So a hit compares eight
// tags at once, which are in the processor's caches even for many keys, and then reads one record, which may
// not be.
//
// A table can be read without a lock. With the shard's mutex, records are added, and never moved or removed:
// a cell keeps its id, also when its record is dead, until the shard has another table. The tag of a record is
// stored last.
type table struct {
	tags     []atomic.Uint64
	records  []record
	text     []byte // keys that are not short, and names
	used     int    // cells, by dead records, too
	textUsed int
}

const (
	groupSize = 8
	lowBits   = 0x0101010101010101
	highBits  = lowBits << 7
)

// noTable is the table of shards that have no records.
var noTable = &table{tags: make([]atomic.Uint64, 1)}

// newTable returns a table for a number of records and of bytes of text.
func newTable(records, text int) *table {
	if records == 0 {
		return noTable
	}
	groups := (records*8/7)/groupSize + 1
	return &table{tags: make([]atomic.Uint64, groups), records: make([]record, groups*groupSize), text: make([]byte, text)}
}

// hasRoom reports whether records and text can be added: an eighth of the cells stays free.
func (t *table) hasRoom(records, text int) bool {
	return 8*(t.used+records) <= 7*len(t.records) && t.textUsed+text <= len(t.text)
}

// tagOf returns the tag of a hash: its lowest seven bits, and a bit that is set.
func tagOf(hash uint32) uint64 { return uint64(hash&0x7f | 0x80) }

// home returns the group that a hash selects.
func (t *table) home(hash uint32) int { return int(uint64(hash) * uint64(len(t.tags)) >> 32) }

// next returns the group after a group.
func (t *table) next(group int) int {
	if group++; group == len(t.tags) {
		return 0
	}
	return group
}

// find returns the record of k, which may be dead, or nil.
func (t *table) find(k *windowID) *record {
	if k.kind&long == 0 {
		return t.findShort(k.hash, k.kind, len(k.key), k.scale, k.words)
	}
	for group := t.home(k.hash); ; group = t.next(group) {
		equal, more := t.match(group, k.hash)
		for ; equal != 0; equal &= equal - 1 {
			if r := t.at(group, equal); r.kind == k.kind && r.scale == k.scale && r.last == k.last && t.hasText(r, k) {
				return r
			}
		}
		if !more {
			return nil
		}
	}
}

// findShort is find for a short key of length n. Its id is in parts, which are in registers: in memory, a hit takes a tenth
// more time.
func (t *table) findShort(hash uint32, kind kind, n int, scale time.Duration, w words) *record {
	for group := t.home(hash); ; group = t.next(group) {
		equal, more := t.match(group, hash)
		for ; equal != 0; equal &= equal - 1 {
			if r := t.at(group, equal); r.kind == kind && r.scale == scale && int(r.keyLen) == n && r.words == w {
				return r
			}
		}
		if !more {
			return nil
		}
	}
}

// match returns a word whose bytes have their highest bit set if the cell of a group has the tag of a hash, and maybe
// others: their records tell. If no cell of the group is free, there may be more in the next one.
func (t *table) match(group int, hash uint32) (equal uint64, more bool) {
	tags := t.tags[group].Load()
	differ := tags ^ tagOf(hash)*lowBits
	// A byte of differ is 0 for an equal tag. The subtraction sets the highest bit of such bytes, and of
	// others that are greater by a carry.
	return (differ - lowBits) &^ differ & highBits, tags&highBits == highBits
}

// at returns the record of the first cell that match has found.
func (t *table) at(group int, equal uint64) *record {
	return &t.records[group*groupSize+bits.TrailingZeros64(equal)/8]
}

// hasText reports whether r, which is long, has the key and the name of k.
func (t *table) hasText(r *record, k *windowID) bool {
	key, name := t.longText(r)
	return string(key) == k.key && string(name) == k.name
}

// longText returns the key and the name of a record that is long.
func (t *table) longText(r *record) (key, name []byte) {
	text := t.text[r.first:]
	return text[:r.keyLen], text[r.keyLen:][:r.nameLen]
}

// keyOf returns the key and the name of a record.
func (t *table) keyOf(r *record) (key, name string) {
	var b [shortKey]byte
	k, n := t.textOf(r, b[:0])
	return string(k), string(n)
}

// textOf returns the key, appended to b if it is short, and the name of a record.
func (t *table) textOf(r *record, b []byte) (key, name []byte) {
	if r.kind&long != 0 {
		return t.longText(r)
	}
	return appendKey(b, r.words, int(r.keyLen)), nil
}

// hasKey reports whether r is a record of a key.
func (t *table) hasKey(r *record, key string) bool {
	if r.kind&long != 0 {
		k, _ := t.longText(r)
		return string(k) == key
	}
	return int(r.keyLen) == len(key) && r.words == wordsOf(key)
}

// insert returns a new record for k, which has none that is not dead. There must be room. The shard's mutex is held.
func (t *table) insert(k *windowID) *record {
	if r := t.find(k); r != nil {
		r.mu.Lock()
		r.dead = false
		r.set(state{})
		r.mu.Unlock()
		return r
	}
	return add(t, k.hash, k.scale, k.kind, k.words, k.key, k.name)
}

// add returns a new record with an id that no record has. There must be room. The shard's mutex is held.
func add[text string | []byte](t *table, hash uint32, scale time.Duration, kind kind, short words, key, name text) *record {
	group := t.home(hash)
	for t.tags[group].Load()&highBits == highBits {
		group = t.next(group)
	}
	tags := t.tags[group].Load()
	cell := bits.TrailingZeros64(^tags&highBits) / 8
	r := &t.records[group*groupSize+cell]
	r.scale, r.kind, r.keyLen, r.nameLen, r.words = scale, kind, uint8(len(key)), uint8(len(name)), short
	if kind&long != 0 {
		r.first = uint64(t.textUsed)
		t.textUsed += copy(t.text[t.textUsed:], key)
		t.textUsed += copy(t.text[t.textUsed:], name)
	}
	t.used++
	t.tags[group].Store(tags | tagOf(hash)<<(8*cell))
	return r
}

// all calls f with all records that are neither dead nor held, with mu locked, from a cell on and up to
// another. The shard's mutex is held.
func (t *table) all(from, to int, f func(r *record) (more bool)) {
	for cell := from; cell < min(to, len(t.records)); cell++ {
		r := &t.records[cell]
		if r.kind == 0 || r.dead || r.held {
			continue
		}
		r.mu.Lock()
		more := f(r)
		r.mu.Unlock()
		if !more {
			return
		}
	}
}

// reserve makes room for records and text. If the table has none, it is replaced by one that has, without the dead
// records. No record is held. The shard's mutex is.
func (s *shard) reserve(b *Backend, records, text int) {
	if !s.table.Load().hasRoom(records, text) {
		live := s.windows + s.shares + records
		s.replace(b, live+live/4+groupSize, text)
	}
}

// compact frees memory if most of it is not in use. The shard's mutex is held, and no record is.
func (s *shard) compact(b *Backend) {
	if live := s.windows + s.shares; 4*live+groupSize < len(s.table.Load().records) {
		s.replace(b, live+live/4, 0)
	}
	s.log.compact(s.table.Load())
}

// replace moves all records to a table for a number of them, with room for more text. A call that has
// found a record in the old table finds it dead.
func (s *shard) replace(b *Backend, records, text int) {
	old := s.table.Load()
	live := text
	old.all(0, len(old.records), func(r *record) bool {
		if r.kind&long != 0 {
			live += int(r.keyLen) + int(r.nameLen)
		}
		return true
	})
	if live > 0 {
		live += live/4 + 256
	}
	t := newTable(records, live)
	old.all(0, len(old.records), func(r *record) bool {
		var short [shortKey]byte
		key, name := old.textOf(r, short[:0])
		h := r.last
		if r.kind&long == 0 {
			h = b.hashWords(r.words)
		}
		moved := add(t, mix(h, r.scale, r.kind), r.scale, r.kind, r.words, key, name)
		moved.set(r.state())
		moved.calls = r.calls
		r.dead = true
		return true
	})
	s.table.Store(t)
}
