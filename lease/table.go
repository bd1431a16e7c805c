package lease

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	ways     = 4    // entries that a key can be in
	counters = 1024 // of the counters of keys that have no entry
	hotHits  = 8    // hits within the age that make a key hot
	recents  = 256  // entries that are found without the hash
)

// table has the entries of hot keys. Each hash has a set of ways in which its entry can be, so finding
// one takes no lock.
type table struct {
	seed maphash.Seed
	ways []atomic.Pointer[entry]

	// recent has most of the entries, each at an index that is found faster than by the hash.
	recent [recents]atomic.Pointer[entry]

	mu   sync.Mutex // guards changes of ways and recent, and what follows
	n    int
	most int // of n

	// Of keys without an entry: how often they were hit, and since when. A counter has the upper bits
	// of the hash, and a count. A key in its place reduces the count of another one first.
	counts [counters]atomic.Uint64
	since  [counters]atomic.Int64
}

const countBits = 16

func newTable(most int) *table {
	sets := 1 << bits.Len(uint(most-1))
	return &table{seed: maphash.MakeSeed(), ways: make([]atomic.Pointer[entry], ways*sets), most: most}
}

// hash returns the hash of a key and a limit, which has no burst.
func (t *table) hash(key string, l *window.Limit) uint64 {
	h := maphash.String(t.seed, key) ^ (uint64(l.Scale)<<3+uint64(l.Algorithm))*0x9e3779b97f4a7c15 ^
		bits.RotateLeft64(l.Max*0xff51afd7ed558ccd, 32)
	if l.Name != "" {
		h += maphash.String(t.seed, l.Name)
	}
	return h ^ h>>32
}

// set returns the ways of a hash.
func (t *table) set(hash uint64) []atomic.Pointer[entry] {
	i := int(hash) * ways & (len(t.ways) - 1) // a power of 2
	return t.ways[i : i+ways : i+ways]
}

// place returns the place of a key in recent. If several keys have the same one, the first of them is
// there, and the others are found by their hashes.
func (t *table) place(key string, l *window.Limit) *atomic.Pointer[entry] {
	i := uint64(len(key)) + l.Max
	if n := len(key); n > 1 {
		i += uint64(key[n-1]) + uint64(key[n-2])<<4
	}
	return &t.recent[i%recents]
}

// lookUp returns the entry of a key if it is one of the recent ones, or nil.
func (t *table) lookUp(key string, l *window.Limit) *entry {
	if e := t.place(key, l).Load(); e != nil && e.limit == *l && e.key == key {
		return e
	}
	return nil
}

// find returns the entry of a key, or nil.
func (t *table) find(hash uint64, key string, l *window.Limit) *entry {
	set := t.set(hash)
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == hash && e.limit == *l && e.key == key {
			return e
		}
	}
	return nil
}

// heat counts a hit on a key without an entry, and reports whether the key is hot. Hits that are counted
// at the same time may be lost.
func (t *table) heat(hash uint64, now func() time.Duration, age time.Duration) bool {
	counter := &t.counts[hash%counters]
	tag := hash >> countBits << countBits
	old := counter.Load()
	count := old & (1<<countBits - 1)
	switch {
	case count == 0 || old^tag < 1<<countBits && count >= hotHits: // the latter: not in time
		if counter.CompareAndSwap(old, tag|1) {
			t.since[hash%counters].Store(int64(now()))
		}
		return false
	case old^tag >= 1<<countBits:
		counter.CompareAndSwap(old, old-1)
		return false
	case count+1 < hotHits:
		counter.CompareAndSwap(old, old+1)
		return false
	}
	counter.CompareAndSwap(old, old+1)
	return now()-time.Duration(t.since[hash%counters].Load()) < age
}

// add adds the entry of a key that has none, unless there is no room for it.
func (t *table) add(e *entry) (added bool, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= t.most || t.find(e.hash, e.key, &e.limit) != nil {
		return false, false
	}
	set := t.set(e.hash)
	for i := range set {
		if set[i].Load() == nil {
			set[i].Store(e)
			t.place(e.key, &e.limit).CompareAndSwap(nil, e)
			t.n++
			return true, t.n == 1
		}
	}
	return false, false
}

// remove removes an entry, and returns how many are left.
func (t *table) remove(e *entry) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	set := t.set(e.hash)
	for i := range set {
		if set[i].Load() == e {
			set[i].Store(nil)
			t.place(e.key, &e.limit).CompareAndSwap(e, nil)
			t.n--
		}
	}
	return t.n
}

// close makes the table add no more entries.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = 0
}

// len returns how many entries there are.
func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// all returns the entries for which match returns true.
func (t *table) all(match func(*entry) bool) (found []*entry) {
	if t.len() == 0 {
		return nil
	}
	for i := range t.ways {
		if e := t.ways[i].Load(); e != nil && match(e) {
			found = append(found, e)
		}
	}
	return found
}
