package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// id identifies a window.
type id struct {
	key, name string
	scale     time.Duration
	hash      uint32 // of all
	kind      kind
}

// kind is an algorithm, and what else tells records apart.
type kind uint8

const (
	shared kind = 1 << (iota + 3) // by keys without a window: see shared.go
	named                         // the limit has a name
)

func (k kind) algorithm() window.Algorithm { return window.Algorithm(k & (shared - 1)) }

// size returns the size that a record of k needs.
func (k *id) size() int {
	n := keyOffset + len(k.key)
	if k.kind&named != 0 {
		n += 1 + len(k.name)
	}
	return n
}

// table is a hash table of records of one size, with linear probing: a record is in the slot
// that its hash selects, its home, or in one of the slots after it, with no free slot in
// between. Each slot has a tag, a byte that differs for most records. So a hit reads a few
// tags, which are in the processor's caches even for many keys, and then one record, which may
// not be.
//
// A table has no pointers to records, so the garbage collector does not scan it.
type table struct {
	tags    []tag
	records []byte
	size    uint32 // of a record
	homes   uint32 // slots that a hash can select; there are a few more after them
	n       int    // slots in use
}

// tag is the lowest seven bits of a hash, and a bit that is set. 0 is a free slot.
type tag uint8

func tagOf(hash uint32) tag { return tag(hash) | 0x80 }

// at returns the record in a slot.
func (t *table) at(slot int) record { return t.records[slot*int(t.size):][:t.size] }

// home returns the slot that a hash selects. It grows with the hash.
func (t *table) home(hash uint32) int { return int(uint64(hash) * uint64(t.homes) >> 32) }

// find returns the slot of k, or -1.
func (t *table) find(k *id) int {
	want := tagOf(k.hash)
	for slot := t.home(k.hash); slot < len(t.tags); slot++ {
		switch t.tags[slot] {
		case want:
			if t.at(slot).isOf(k) {
				return slot
			}
		case 0:
			return -1
		}
	}
	return -1
}

// insert returns a new record for k, which has none yet.
func (t *table) insert(k *id) record {
	slot := -1
	if 8*(t.n+1) <= 7*int(t.homes) {
		slot = t.allocate(k.hash)
	}
	for slot < 0 {
		t.resize(t.homes + t.homes/4 + 8)
		slot = t.allocate(k.hash)
	}
	r := t.at(slot)
	r.setID(k)
	return r
}

// allocate marks a slot for a record with a hash as used. It returns -1 if there is no free
// slot between its home and the end.
func (t *table) allocate(hash uint32) int {
	for slot := t.home(hash); slot < len(t.tags); slot++ {
		if t.tags[slot] == 0 {
			t.tags[slot] = tagOf(hash)
			t.n++
			return slot
		}
	}
	return -1
}

// remove removes the record in a slot. It moves the records after it up, up to the next free
// slot, except those that would get before their home.
func (t *table) remove(slot int) {
	t.n--
	for i := slot + 1; i < len(t.tags) && t.tags[i] != 0; i++ {
		if r := t.at(i); t.home(r.hash()) <= slot {
			t.tags[slot] = t.tags[i]
			copy(t.at(slot), r)
			slot = i
		}
	}
	t.tags[slot] = 0
}

// compact frees memory if most of it is not in use.
func (t *table) compact() {
	switch {
	case t.n == 0:
		*t = table{size: t.size}
	case 4*t.n < int(t.homes):
		t.resize(uint32(t.n + t.n/4))
	}
}

// resize moves all records to a table with the given number of homes, or more if they do not
// fit.
func (t *table) resize(homes uint32) {
	old := *t
	for !t.refill(&old, homes) {
		homes += homes/4 + 8
	}
}

// refill makes t a copy of old with the given number of homes. It returns false if the records
// do not fit.
func (t *table) refill(old *table, homes uint32) bool {
	slots := homes + homes/16 + 8
	*t = table{tags: make([]tag, slots), records: make([]byte, int(slots)*int(old.size)), size: old.size, homes: homes}
	for i := range old.tags {
		if old.tags[i] == 0 {
			continue
		}
		r := old.at(i)
		slot := t.allocate(r.hash())
		if slot < 0 {
			return false
		}
		copy(t.at(slot), r)
	}
	return true
}
