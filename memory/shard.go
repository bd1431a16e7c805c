package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"hash/maphash"
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
	// step is how many cells are looked at before the shard's mutex is unlocked, or for a new key if there is no room.
	step = 128
)

// shard is a table of the records of some keys. The mutex guards all of it.
//
// A record that counts something is not removed to make room for another. When there is no room, a key without a record
// is refused. One that counts nothing is removed by the call that has ended it.
//
// The records of a cell are a list. A cell has the hashes from its index to the next one, each followed by as many bits
// as there are: when the number of cells changes, the order of hashes does not.
type shard struct {
	mu       sync.Mutex
	closed   bool
	index    int // of the shard; constant
	calls    uint64
	series   uint64           // the last one
	cells    []*row           // their number is a power of two
	shift    int              // of a hash, to the index of its cell
	count    int              // of records
	maxCount int              // constant
	times    int              // for which the logs of all records have room
	maxTimes int              // constant
	maxLog   uint64           // constant
	swept    uint64           // the hash with which sweep goes on
	scratch  algorithm.Record // of a call that has no record, or changes none
}

// id is a key as it is stored, with a hash.
type id struct {
	key    string
	digest bool   // the key is one
	hash   uint64 // of the key and a limit
}

// row is the record of a key and limit in the table.
type row struct {
	hash     uint64 // of the key and the limit
	next     *row   // in its cell
	text     []byte // the key, the name, and of a calendar window a zero byte and the zone
	length   uint8  // of the key
	digest   bool
	kind     window.Algorithm
	unit     window.Calendar
	startDay uint8
	short    [27]byte // has the text if that fits: with many records, to read it elsewhere is what takes longest
	algorithm.Record
}

// locate returns what is stored of a key, and the shard in which the records of all its limits are. Limits that differ
// only in their calendars have the same hash.
func (b *Backend) locate(key string, l *window.Limit) (id, *shard) {
	digest := len(key) > longestKey
	if digest {
		sum := sha256.Sum256([]byte(key))
		key = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	hash := maphash.String(b.seed, key)
	s := &b.shards[hash&uint64(len(b.shards)-1)]
	hash ^= (uint64(l.Scale)<<3 + uint64(l.Algorithm)) * golden
	if l.Name != "" {
		hash ^= maphash.String(b.seed, l.Name)
	}
	return id{key, digest, hash}, s
}

// golden is a factor that spreads numbers over all hashes, each to another one.
const golden = 0x9e3779b97f4a7c15

// hasKey reports whether the record is of a key.
func (r *row) hasKey(k *id) bool { return string(r.text[:r.length]) == k.key && r.digest == k.digest }

// is reports whether the record is that of a key and limit.
func (r *row) is(k *id, l *window.Limit) bool {
	switch {
	case r.kind != l.Algorithm || !r.hasKey(k):
		return false
	case l.Calendar == 0:
		return r.Scale == l.Scale && string(r.text[r.length:]) == l.Name
	}
	of := limits.Identity(l)
	name, zone, _ := bytes.Cut(r.text[r.length:], []byte{0})
	return r.unit == of.Calendar && r.startDay == of.StartDay && string(name) == of.Name && string(zone) == of.Zone
}

// limit returns what the record is for.
func (r *row) limit() window.Limit {
	l := window.Limit{Scale: r.Scale, Algorithm: r.kind, Calendar: r.unit, StartDay: r.startDay}
	if l.Calendar != 0 {
		l.Scale = 0
	}
	l.Name, l.Zone, _ = strings.Cut(string(r.text[r.length:]), "\x00")
	return l
}

// listed describes the record.
func (r *row) listed(at algorithm.Time) window.Listed {
	return algorithm.Listed(string(r.text[:r.length]), r.digest, r.limit(), &r.Record, at)
}

// left returns in which time nothing of the record counts. It is negative if nothing has counted for so long.
func (r *row) left(at algorithm.Time) time.Duration {
	l := window.Limit{Scale: r.Scale, Algorithm: r.kind} // the name does not matter
	if r.unit != 0 {
		l = r.limit()
	}
	by := algorithm.RuleOf(&l)
	return by.Left(&r.Record, at)
}

// find returns the record of a key and limit, or nil.
func (s *shard) find(k *id, l *window.Limit) *row {
	r := s.cells[k.hash>>s.shift]
	for r != nil && !r.is(k, l) {
		r = r.next
	}
	return r
}

// clear removes all records.
func (s *shard) clear() {
	s.cells = make([]*row, 1)
	s.shift = 64
	s.count = 0
	s.times = 0
}

// insert adds a copy of a record of a key and limit. It does not keep the caller's strings.
func (s *shard) insert(k *id, l *window.Limit, r *algorithm.Record) {
	of := limits.Identity(l)
	if of.Calendar != 0 {
		of.Name += "\x00" + of.Zone
	}
	added := &row{
		hash: k.hash, digest: k.digest,
		kind: of.Algorithm, unit: of.Calendar, startDay: of.StartDay,
		length: uint8(len(k.key)),
		Record: *r,
	}
	added.text = added.short[:0]
	if n := len(k.key) + len(of.Name); n > len(added.short) {
		added.text = make([]byte, 0, n)
	}
	added.text = append(append(added.text, k.key...), of.Name...)
	s.put(added)
	s.count++
	s.times += r.Log.Times()
	if s.count > len(s.cells) {
		s.grow()
	}
}

// put adds a record to its cell.
func (s *shard) put(r *row) {
	cell := &s.cells[r.hash>>s.shift]
	r.next = *cell
	*cell = r
}

// grow makes twice as many cells. There are never fewer than before: a cell takes little beside a record.
func (s *shard) grow() {
	old := s.cells
	s.cells = make([]*row, 2*len(old))
	s.shift--
	for _, r := range old {
		for r != nil {
			next := r.next
			s.put(r)
			r = next
		}
	}
}

// remove removes a record, whose next stays.
func (s *shard) remove(r *row) {
	s.count--
	s.times -= r.Log.Times()
	at := &s.cells[r.hash>>s.shift]
	for *at != r {
		at = &(*at).next
	}
	*at = r.next
}

// removeEmpty removes a record if it counts nothing.
func (s *shard) removeEmpty(r *row) {
	if r.Empty() {
		s.remove(r)
	}
}

// visit calls look with the records of some cells, from that of a hash on, and returns the hash that comes next; 0:
// those were the last ones. Look may remove the record.
func (s *shard) visit(hash uint64, look func(r *row)) (next uint64) {
	i := int(hash >> s.shift)
	end := min(i+step, len(s.cells))
	for _, r := range s.cells[i:end] {
		for ; r != nil; r = r.next {
			look(r)
		}
	}
	return uint64(end) << s.shift // 0 at the end of the cells
}

// sweep looks at some records, others each time, and removes those of which nothing counts.
func (s *shard) sweep(at algorithm.Time) {
	s.swept = s.visit(s.swept, func(r *row) {
		if r.left(at) <= 0 {
			s.remove(r)
		}
	})
}

// walk calls look with each record while the mutex is locked, and rest while it is not: after every few records, and at
// the end. Look may remove the record. Others may add and remove records in between: no record is missed that is there
// all the time. When rest returns false, walk does.
func (b *Backend) walk(s *shard, look func(r *row, at algorithm.Time), rest func() bool) bool {
	for hash, more := uint64(0), true; more; more = hash != 0 {
		s.mu.Lock()
		at := b.clock.now()
		hash = s.visit(hash, func(r *row) { look(r, at) })
		s.mu.Unlock()
		if !rest() {
			return false
		}
	}
	return true
}
