package memory

import "time"

// id is what a window is known by.
type id struct {
	key   string
	scale time.Duration
	hash  uint32 // of both
}

// table keeps records of one size, and finds them by id. Each is in the place that its hash
// points to or, if that is taken, in the next free one after it. A place has a tag, a byte
// that tells most records apart: so a hit goes through a few bytes, which the processor's
// caches hold for many keys, and then reads one record, which may be far away.
//
// There is not a pointer in them, so the garbage collector has nothing to look at.
type table struct {
	tags    []tag
	records []byte
	size    uint32 // of a record
	homes   uint32 // places that a hash may point to; a few more lie behind them
	n       int    // places that are taken
}

// tag is the lowest seven bits of a hash, and a bit that is set. 0: a free place.
type tag uint8

func tagOf(hash uint32) tag { return tag(hash) | 0x80 }

// at returns the record in a place.
func (t *table) at(place int) record { return t.records[place*int(t.size):][:t.size] }

// home returns the place that a hash points to: as far along as the hash is in its range.
func (t *table) home(hash uint32) int { return int(uint64(hash) * uint64(t.homes) >> 32) }

// find returns the place of k, or -1.
func (t *table) find(k id) int {
	want := tagOf(k.hash)
	for i := t.home(k.hash); i < len(t.tags); i++ {
		switch t.tags[i] {
		case want:
			if t.at(i).is(k) {
				return i
			}
		case 0:
			return -1
		}
	}
	return -1
}

// insert returns a new record for k, of which there is none.
func (t *table) insert(k id) record {
	place := -1
	if 8*(t.n+1) <= 7*int(t.homes) {
		place = t.take(k.hash)
	}
	for place < 0 {
		t.resize(t.homes + t.homes/4 + 8)
		place = t.take(k.hash)
	}
	r := t.at(place)
	r.name(k)
	return r
}

// take takes a place for a record with a hash, or returns -1 if none is free up to the end.
func (t *table) take(hash uint32) int {
	for i := t.home(hash); i < len(t.tags); i++ {
		if t.tags[i] == 0 {
			t.tags[i] = tagOf(hash)
			t.n++
			return i
		}
	}
	return -1
}

// remove removes the record in a place. Those that follow move up, as long as they are not
// in the place that their hash points to.
func (t *table) remove(place int) {
	t.n--
	for i := place + 1; i < len(t.tags) && t.tags[i] != 0; i++ {
		if r := t.at(i); t.home(r.hash()) <= place {
			t.tags[place] = t.tags[i]
			copy(t.at(place), r)
			place = i
		}
	}
	t.tags[place] = 0
}

// compact gives memory back if most of it is not in use.
func (t *table) compact() {
	switch {
	case t.n == 0:
		*t = table{size: t.size}
	case 4*t.n < int(t.homes):
		t.resize(uint32(t.n + t.n/4))
	}
}

// resize moves all records to a table with so many homes, or more, if they do not fit.
func (t *table) resize(homes uint32) {
	old := *t
	for !t.refill(&old, homes) {
		homes += homes/4 + 8
	}
}

func (t *table) refill(old *table, homes uint32) bool {
	places := homes + homes/16 + 8
	*t = table{tags: make([]tag, places), records: make([]byte, int(places)*int(old.size)), size: old.size, homes: homes}
	for i := range old.tags {
		if old.tags[i] == 0 {
			continue
		}
		r := old.at(i)
		place := t.take(r.hash())
		if place < 0 {
			return false
		}
		copy(t.at(place), r)
	}
	return true
}
