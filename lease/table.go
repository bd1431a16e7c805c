package lease

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	shards   = 64
	counters = 16 // of a shard
	hotHits  = 8  // hits within the age that make a key hot
)

// table has the entries of hot keys, and counts the hits on others.
type table struct {
	seed   maphash.Seed
	most   int64        // entries
	n      atomic.Int64 // entries, and those that are being added
	closed atomic.Bool  // no entries are added any more
	shards [shards]shard
}

// shard has the keys of some hashes. The mutex guards all of it.
type shard struct {
	mu       sync.Mutex
	entries  map[string][]*entry // by key: those of its limits
	counters [counters]counter
}

// counter counts the hits on one of the keys that have its hash and no entry: the one that is hit most.
type counter struct {
	hash  uint64
	n     int
	since time.Duration // of the first of them
}

func newTable(most int) *table {
	return &table{seed: maphash.MakeSeed(), most: int64(most)}
}

// shardOf returns the shard of a key, and the hash.
func (t *table) shardOf(key string) (*shard, uint64) {
	hash := maphash.String(t.seed, key)
	return &t.shards[hash%shards], hash / shards
}

// find returns the entry of a key and limit, or nil.
func (t *table) find(key string, l *window.Limit) *entry {
	s, _ := t.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(key, l)
}

// find returns the entry of a key and limit, or nil. The caller holds mu.
func (s *shard) find(key string, l *window.Limit) *entry {
	for _, e := range s.entries[key] {
		if e.limit == *l {
			return e
		}
	}
	return nil
}

// heat counts a hit on a key without an entry, and reports whether the key is hot.
func (t *table) heat(key string, now, age time.Duration) bool {
	s, hash := t.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counters[hash%counters]
	switch {
	case c.n == 0 || c.hash == hash && now-c.since >= age:
		*c = counter{hash: hash, n: 1, since: now}
	case c.hash != hash:
		c.n--
	case c.n+1 < hotHits:
		c.n++
	default:
		c.n = 0
		return true
	}
	return false
}

// add returns the entry of a key and limit, which is made if there is none. It returns nil if there is no room for
// another one.
func (t *table) add(key string, l *window.Limit, made func(key string) *entry) *entry {
	s, _ := t.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(key, l); e != nil {
		return e
	}
	if t.n.Add(1) > t.most || t.closed.Load() {
		t.n.Add(-1)
		return nil
	}
	key = strings.Clone(key)
	e := made(key)
	if s.entries == nil {
		s.entries = make(map[string][]*entry)
	}
	s.entries[key] = append(s.entries[key], e)
	return e
}

// remove removes an entry.
func (t *table) remove(e *entry) {
	s, _ := t.shardOf(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.entries[e.key]
	others := slices.DeleteFunc(slices.Clone(before), func(o *entry) bool { return o == e })
	t.n.Add(int64(len(others) - len(before)))
	s.entries[e.key] = others
	if len(others) == 0 {
		delete(s.entries, e.key)
	}
}

// ofKey returns the entries of a key.
func (t *table) ofKey(key string) []*entry {
	s, _ := t.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*entry(nil), s.entries[key]...)
}

// all returns all entries.
func (t *table) all() (found []*entry) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, entries := range s.entries {
			found = append(found, entries...)
		}
		s.mu.Unlock()
	}
	return found
}
