package memory

import (
	"math/bits"
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
	// sweepStep is how many cells are looked at for a new key if there is no room.
	sweepStep = 128
)

// shard is a table of the records of some keys. The mutex guards all of it.
//
// A record that counts something is not removed to make room for another. When there is no room, a key without a record
// is refused. One that counts nothing is removed by the call that has ended it.
//
// The records of a cell are a list. A cell has the hashes from its index to the next one, each followed by as many bits
// as there are: when the number of cells changes, the order of hashes does not.
type shard struct {
	mu      sync.Mutex
	closed  bool
	index   int32 // of the shard; constant
	calls   uint64
	series  uint64    // the last one
	cells   []*record // their number is a power of two
	shift   int       // of a hash, to the index of its cell
	records int

	// What most calls need is before this: a cache line of 64 bytes.
	times   int              // for which the logs of all records have room
	swept   uint64           // the hash with which sweep goes on
	scratch algorithm.Record // of a call that changes none
}

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
	digest   bool
	kind     window.Algorithm
	unit     window.Calendar
	startDay uint8
	length   uint8  // of the key
	text     string // the key, the name, and of a calendar window a zero byte and the zone
	algorithm.Record
}

// is reports whether the record is that of an id and a limit.
func (r *record) is(k id, l *window.Limit) bool {
	if r.hash != k.hash || r.kind != l.Algorithm || !r.hasKeyOf(k) {
		return false
	}
	if l.Calendar == 0 {
		return r.Scale == l.Scale && r.rest() == l.Name
	}
	return r.limit() == limits.Identity(l)
}

// hasKeyOf reports whether the record is of the key of k.
func (r *record) hasKeyOf(k id) bool {
	return r.key() == k.key && r.digest == k.digest
}

func (r *record) key() string { return r.text[:r.length] }

// rest returns the text without the key.
func (r *record) rest() string { return r.text[r.length:] }

// limit returns what the record is for.
func (r *record) limit() window.Limit {
	l := window.Limit{Scale: r.Scale, Algorithm: r.kind, Calendar: r.unit, StartDay: r.startDay}
	if l.Calendar != 0 {
		l.Scale = 0
	}
	l.Name, l.Zone, _ = strings.Cut(r.rest(), "\x00")
	return l
}

// rule returns the numbers of the last call.
func (r *record) rule() algorithm.Rule {
	by := r.Rule()
	if r.unit != 0 {
		l := r.limit()
		by.Calendar, _ = limits.CalendarOf(&l)
	}
	return by
}

// left returns in which time nothing of the record counts. It is negative if nothing has counted for so long.
func (r *record) left(at algorithm.Time) time.Duration {
	by := r.rule()
	return algorithm.Of(r.kind).Left(&r.Record, &by, &at)
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

func (s *shard) find(k id, l *window.Limit) *record {
	if len(s.cells) == 0 {
		return nil
	}
	r := s.cells[k.hash>>s.shift]
	for r != nil && !r.is(k, l) {
		r = r.next
	}
	return r
}

// insert adds an empty record, which does not keep the caller's strings.
func (s *shard) insert(k id, l *window.Limit) *record {
	if s.records >= len(s.cells) {
		s.resize(max(8, 2*len(s.cells)))
	}
	s.records++
	of := limits.Identity(l)
	if of.Calendar != 0 {
		of.Name += "\x00" + of.Zone
	}
	r := &record{
		hash: k.hash, digest: k.digest,
		kind: of.Algorithm, unit: of.Calendar, startDay: of.StartDay,
		length: uint8(len(k.key)),
		text:   strings.Clone(k.key + of.Name),
	}
	r.Scale = of.Scale
	s.put(r)
	return r
}

// put adds a record to its cell.
func (s *shard) put(r *record) {
	cell := &s.cells[r.hash>>s.shift]
	r.next = *cell
	*cell = r
}

// removeEmpty removes a record that counts nothing.
func (s *shard) removeEmpty(r *record) {
	if r.Empty() {
		s.remove(r)
	}
}

func (s *shard) remove(r *record) {
	s.times -= r.Log.Times()
	s.records--
	at := &s.cells[r.hash>>s.shift]
	for *at != r {
		at = &(*at).next
	}
	*at = r.next
}

// resize makes n cells, a power of two. There are never fewer than before: a cell takes little beside a record.
func (s *shard) resize(n int) {
	old := s.cells
	s.cells = make([]*record, n)
	s.shift = 65 - bits.Len(uint(n))
	for _, r := range old {
		for r != nil {
			next := r.next
			s.put(r)
			r = next
		}
	}
}

// visit calls f with the records of the next n cells, from that of a hash on, and returns the hash that comes next; 0:
// those were the last ones. Cells have at most one record on average. F may remove the record.
func (s *shard) visit(hash uint64, n int, f func(r *record)) (next uint64) {
	if len(s.cells) == 0 {
		return 0
	}
	i := int(hash >> s.shift)
	end := min(i+n, len(s.cells))
	for _, r := range s.cells[i:end] {
		for r != nil {
			after := r.next
			f(r)
			r = after
		}
	}
	return uint64(end) << s.shift // 0 at the end of the cells
}

// sweep looks at the records of some cells, others each time, and removes those of which nothing counts.
func (s *shard) sweep(at algorithm.Time) {
	s.swept = s.visit(s.swept, sweepStep, func(r *record) {
		if r.left(at) <= 0 {
			s.remove(r)
		}
	})
}
