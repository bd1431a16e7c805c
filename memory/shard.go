package memory

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

const (
	maxShards = 256
	// longestKey is the length of the longest key that is stored. Of longer ones, a digest is.
	longestKey = 128
	// sweepStep is how many records are looked at for a new key if there is no room.
	sweepStep = 128
	// keysPerShared is how many keys there may be for each shared count of a limit.
	keysPerShared = 64
	// sharedLimits is how many names, scales and algorithms can have all of their shared counts.
	sharedLimits = 16
)

// shard has the records of some keys. The mutex guards all of it.
//
// A key and limit have a record of their own, as long as there is room for it. A record that counts something is not
// removed to make room. When there is none, a new key shares a record with others: a hash of the key selects one of a
// fixed number for each name, scale and algorithm. All of them add to it, so it shows at least what each has added, and
// no key gets more than its limit. What counts for a key is
//
//  1. its own record, if it has one;
//  2. the shared one while that counts something, even if there is room again: its count would otherwise start anew;
//  3. otherwise nothing, and the next take makes a record of its own if there is room, or begins the shared one.
//
// A shared record of a rolling algorithm counts something for as long as any of its keys is hit. So a key gets a copy
// of it, as its own record, as soon as there is room.
type shard struct {
	mu     sync.Mutex
	closed bool
	index  int32 // of the shard; constant
	calls  uint64
	series uint64 // the last one
	own    table  // of one key each

	// What most calls need is before this: a cache line of 64 bytes.
	shared  table
	scratch algorithm.Record // of a call that changes none
}

// logRoom reports whether a log that has room for some times may have room for more. The mutex is held.
func (s *shard) logRoom(b *Backend, from, to int) bool {
	return s.own.times+s.shared.times+to-from <= b.shardTimes
}

// ended removes a record that was ended, unless its key would then share what others count: it stays until others need
// the room.
func (s *shard) ended(r *record) {
	if s.shared.len == 0 {
		s.own.remove(r)
	}
}

// sharesAny reports whether a key shares a record of some scales, or of any, that counts something.
func (s *shard) sharesAny(b *Backend, k id, scales []time.Duration, at instant) bool {
	hash, cell := maphash.String(b.seed, k.key), b.sharedKey(k.key)
	shares := false
	s.shared.visit(0, len(s.shared.cells), func(r *record) {
		if r.key() != cell || len(scales) > 0 && !slices.Contains(scales, r.Scale) || r.left(at) <= 0 {
			return
		}
		l := r.limit()
		k.hash = b.mix(hash, &l)
		shares = shares || s.own.find(k, &l) == nil
	})
	return shares
}

const (
	fewestCells = 8 // of a table, a power of two
	shortKey    = 16
)

// id tells the records of a limit apart.
type id struct {
	hash   uint64 // of the key, and of what of the limit a record is for
	key    string
	digest bool // the key is one
}

// record is what is counted of a key and limit.
type record struct {
	hash     uint64
	next     *record // in its cell
	kind     window.Algorithm
	digest   bool
	unit     window.Calendar
	startDay uint8
	length   uint8          // of the key
	short    [shortKey]byte // the key, if it is not longer: it is beside what else is compared
	text     string         // the key if it is longer, the name, and of a calendar window a zero byte and the zone
	algorithm.Record
}

// is reports whether the record is that of an id and a limit, which have its hash.
func (r *record) is(k id, l *window.Limit) bool {
	if r.Scale != l.Scale || r.kind != l.Algorithm || !r.hasKeyOf(k) {
		return false
	}
	if l.Calendar == 0 {
		return r.rest() == l.Name
	}
	return r.limit() == limits.Identity(l)
}

// hasKeyOf reports whether the record is of the key of k.
func (r *record) hasKeyOf(k id) bool {
	if int(r.length) != len(k.key) || r.digest != k.digest {
		return false
	}
	if len(k.key) <= shortKey {
		return string(r.short[:len(k.key)]) == k.key
	}
	return r.text[:len(k.key)] == k.key
}

// key returns the key.
func (r *record) key() string {
	if r.length <= shortKey {
		return string(r.short[:r.length])
	}
	return r.text[:r.length]
}

// rest returns the text without the key.
func (r *record) rest() string {
	if r.length <= shortKey {
		return r.text
	}
	return r.text[r.length:]
}

// limit returns what the record is for.
func (r *record) limit() window.Limit {
	name, zone, _ := strings.Cut(r.rest(), "\x00")
	return window.Limit{Name: name, Scale: r.Scale, Algorithm: r.kind, Calendar: r.unit, Zone: zone,
		StartDay: r.startDay}
}

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

// table finds records by their hashes. The records of a cell are a list. A cell has the hashes from its index to the
// next one, each followed by as many bits as there are: when the number of cells changes, the order of hashes does
// not.
type table struct {
	cells []*record // their number is a power of two
	shift int       // of a hash, to the index of its cell
	len   int       // records
	most  int       // of them
	next  uint64    // the hash with which sweep goes on
	times int       // for which the logs of all records have room
}

func (t *table) find(k id, l *window.Limit) *record {
	if len(t.cells) == 0 {
		return nil
	}
	r := t.cells[k.hash>>t.shift]
	for r != nil && (r.hash != k.hash || !r.is(k, l)) {
		r = r.next
	}
	return r
}

// hasRoom reports whether there is room for another record. If there is none, it looks for some that are over.
func (t *table) hasRoom(at instant) bool {
	if t.len >= t.most {
		t.sweep(at, sweepStep)
	}
	return t.len < t.most
}

// insert adds an empty record, which does not keep the caller's strings.
func (t *table) insert(k id, l *window.Limit) *record {
	if t.len >= len(t.cells) {
		t.resize(max(fewestCells, 2*len(t.cells)))
	}
	t.len++
	of := limits.Identity(l)
	r := &record{
		hash: k.hash, kind: of.Algorithm, digest: k.digest, unit: of.Calendar, startDay: of.StartDay,
		length: uint8(len(k.key)),
		text:   strings.Clone(of.Name),
	}
	if copy(r.short[:], k.key) < len(k.key) {
		r.text = k.key + of.Name
	}
	if of.Calendar != 0 {
		r.text += "\x00" + of.Zone
	}
	r.Scale = of.Scale
	t.put(r)
	return r
}

// put adds a record to its cell.
func (t *table) put(r *record) {
	cell := &t.cells[r.hash>>t.shift]
	r.next = *cell
	*cell = r
}

func (t *table) remove(r *record) {
	t.times -= r.Log.Times()
	t.len--
	at := &t.cells[r.hash>>t.shift]
	for *at != r {
		at = &(*at).next
	}
	*at = r.next
}

// resize makes n cells.
func (t *table) resize(n int) {
	old := t.cells
	t.cells = make([]*record, n)
	t.shift = 65 - bits.Len(uint(n))
	for _, r := range old {
		for r != nil {
			next := r.next
			t.put(r)
			r = next
		}
	}
}

// shrink gives memory of a log back that it does not use.
func (t *table) shrink(r *record) {
	before := r.Log.Times()
	r.Log.Shrink()
	t.times -= before - r.Log.Times()
}

// visit calls f with the records of the next n cells, from that of a hash on, and returns the hash that comes next; 0:
// those were the last ones. Cells have at most one record on average. F may remove the record.
func (t *table) visit(hash uint64, n int, f func(r *record)) (next uint64) {
	if len(t.cells) == 0 {
		return 0
	}
	i := int(hash >> t.shift)
	end := min(i+n, len(t.cells))
	for _, r := range t.cells[i:end] {
		for r != nil {
			after := r.next
			f(r)
			r = after
		}
	}
	return uint64(end) << t.shift // 0 at the end of the cells
}

// sweep looks at the records of n cells, others each time, and removes those of which nothing counts.
func (t *table) sweep(at instant, n int) {
	t.next = t.visit(t.next, n, func(r *record) {
		if r.left(at) <= 0 {
			t.remove(r)
		}
	})
}

// fit gives memory back if most of it is not used.
func (t *table) fit() {
	n := len(t.cells)
	for n > fewestCells && t.len <= n/4 {
		n /= 2
	}
	if n < len(t.cells) {
		t.resize(n)
	}
}
