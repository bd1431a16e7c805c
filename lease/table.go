package lease

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// table has the entries of hot keys.
type table struct {
	most int // entries

	mu      sync.RWMutex        // guards what follows
	entries map[string][]*entry // by key: those of its limits
	n       int                 // entries
	closed  bool                // no entries are added any more
}

func newTable(most int) *table { return &table{most: most, entries: map[string][]*entry{}} }

// find returns the entry of a key and limit, or nil.
func (t *table) find(key string, l *window.Limit) *entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.of(key, l)
}

// of returns the entry of a key and limit, or nil. The caller holds mu.
func (t *table) of(key string, l *window.Limit) *entry {
	for _, e := range t.entries[key] {
		if e.limit == *l {
			return e
		}
	}
	return nil
}

// add adds an entry, unless there is one of its key and limit, and returns the one that there is. It returns nil if
// there is no room for another one.
func (t *table) add(e *entry) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if there := t.of(e.key, &e.limit); there != nil {
		return there
	}
	if t.n >= t.most || t.closed {
		return nil
	}
	t.n++
	t.entries[e.key] = append(t.entries[e.key], e)
	return e
}

// remove removes an entry.
func (t *table) remove(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.entries[e.key])
	left := slices.DeleteFunc(t.entries[e.key], func(o *entry) bool { return o == e })
	t.n -= before - len(left)
	t.entries[e.key] = left
	if len(left) == 0 {
		delete(t.entries, e.key)
	}
}

// ofKey returns the entries of a key.
func (t *table) ofKey(key string) []*entry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clone(t.entries[key])
}

// all returns all entries.
func (t *table) all() (found []*entry) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, entries := range t.entries {
		found = append(found, entries...)
	}
	return found
}

// close makes add refuse further entries, and returns those that there are.
func (t *table) close() []*entry {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	return t.all()
}

const (
	counters = 1024
	hotHits  = 8 // hits within the age that make a key hot
)

// heat counts hits on keys without an entry.
type heat struct {
	seed     maphash.Seed
	mu       sync.Mutex // guards counters
	counters [counters]counter
}

// counter counts the hits on one of the keys without an entry that share it: hits on others count it down, so that the
// key that is hit most gets it.
type counter struct {
	hash  uint64        // of the key
	n     int           // 0: free
	since time.Duration // of the first of them
}

// hit counts a hit on a key, and reports whether the key is hot.
func (h *heat) hit(key string, now, age time.Duration) bool {
	hash := maphash.String(h.seed, key)
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &h.counters[hash%counters]
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
