package memory

import (
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// id tells records apart.
type id struct {
	hash      uint64 // of all else
	key, name string
	scale     time.Duration
	kind      window.Algorithm
	digest    bool // the key is one

	unit     window.Calendar // of calendar windows
	startDay uint8
	zone     string
}

// record is what is counted of an id.
type record struct {
	hash      uint64
	next      *record // of those with the same hash
	index     int32   // in the table's list
	kind      window.Algorithm
	digest    bool
	unit      window.Calendar
	startDay  uint8
	key, name string // the name of a calendar window is followed by a zero byte and the zone
	algorithm.Record
}

func (r *record) is(k *id) bool {
	if r.Scale != k.scale || r.kind != k.kind || r.digest != k.digest || r.key != k.key {
		return false
	}
	if k.unit == 0 {
		return r.name == k.name
	}
	name, zone := r.nameAndZone()
	return r.unit == k.unit && r.startDay == k.startDay && name == k.name && zone == k.zone
}

func (r *record) nameAndZone() (name, zone string) {
	name, zone, _ = strings.Cut(r.name, "\x00")
	return name, zone
}

// hasKeyOf reports whether the record is of the key of k.
func (r *record) hasKeyOf(k id) bool { return r.key == k.key && r.digest == k.digest }

// over returns the state that the record had last, which has ended when left was 0. What rolling algorithms count is 0
// then.
func (r *record) over(left time.Duration) algorithm.State {
	s := algorithm.State{Left: left, ID: r.ID}
	if !r.kind.Rolling() {
		s.Count = r.Count
	}
	return s
}

// left returns in which time nothing of the record counts. It is negative if nothing has counted for so long.
func (r *record) left(at instant) time.Duration {
	a := algorithm.Of(r.kind)
	return a.Left(&r.Record, at.of(a))
}

// table finds records by their ids. The list is for those who look at all of them in steps, and begin at its end: a
// record that is removed is replaced by the last one, which they have seen.
type table struct {
	byHash map[uint64]*record
	list   []*record
	next   int // of the list, for sweep
	times  int // for which the logs of all records have room
}

func (t *table) find(k *id) *record {
	r := t.byHash[k.hash]
	for r != nil && !r.is(k) {
		r = r.next
	}
	return r
}

// insert adds an empty record, which does not keep the caller's strings.
func (t *table) insert(k *id) *record {
	text := k.key + k.name
	switch {
	case k.unit != 0:
		text += "\x00" + k.zone
	case k.name == "":
		text = string(append([]byte(nil), k.key...))
	}
	r := &record{
		hash: k.hash, next: t.byHash[k.hash], index: int32(len(t.list)), kind: k.kind, digest: k.digest,
		unit: k.unit, startDay: k.startDay, key: text[:len(k.key)], name: text[len(k.key):],
	}
	r.Scale = k.scale
	if t.byHash == nil {
		t.byHash = map[uint64]*record{}
	}
	t.byHash[k.hash] = r
	t.list = append(t.list, r)
	return r
}

func (t *table) remove(r *record) {
	t.times -= r.Log.Times()
	last := len(t.list) - 1
	t.list[r.index] = t.list[last]
	t.list[r.index].index = r.index
	t.list[last] = nil
	t.list = t.list[:last]
	if first := t.byHash[r.hash]; first != r {
		for first.next != r {
			first = first.next
		}
		first.next = r.next
	} else if r.next != nil {
		t.byHash[r.hash] = r.next
	} else {
		delete(t.byHash, r.hash)
	}
}

// shrink gives memory of a log back that it does not use.
func (t *table) shrink(r *record) {
	before := r.Log.Times()
	r.Log.Shrink()
	t.times -= before - r.Log.Times()
}

// sweep looks at up to n records, at others each time, and removes those of which nothing counts.
func (t *table) sweep(at instant, n int) {
	for range min(n, len(t.list)) {
		t.next--
		if t.next < 0 || t.next >= len(t.list) {
			t.next = len(t.list) - 1
		}
		if r := t.list[t.next]; r.left(at) <= 0 {
			t.remove(r)
		}
	}
}

// fit gives memory back if most of it is not used.
func (t *table) fit() {
	if cap(t.list) <= 64 || len(t.list) > cap(t.list)/4 {
		return
	}
	t.list = append(make([]*record, 0, 2*len(t.list)), t.list...)
	byHash := make(map[uint64]*record, len(t.list))
	for hash, r := range t.byHash {
		byHash[hash] = r
	}
	t.byHash = byHash
}
