package fixedwindow

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/window"
)

const (
	tableShards = 64
	// evictionSample is how many entries are considered for eviction at a time.
	evictionSample = 16
)

// entry is what a backend remembers of a count.
type entry[T codec.Value] struct {
	entryKey
	windows   *slots[T]
	coalescer *coalesce.Coalescer // of hits in the windows
	// sweepEvery is how often a server that is not parked must be swept for the records.
	sweepEvery time.Duration
	evicted    atomic.Bool // it was in the table, and is not any more
	duties     int         // how many the janitor has for it, whose mutex guards this
}

// entryKey identifies an entry.
type entryKey struct {
	key, name string // the name is that of the limit
	scale     time.Duration
}

func entryKeyOf(key string, l *window.Limit) entryKey {
	return entryKey{key: key, name: l.Name, scale: l.Scale}
}

// limit returns a limit of the entries with the key k.
func (k entryKey) limit() window.Limit {
	return window.Limit{Name: k.name, Max: 1, Scale: k.scale, Algorithm: window.FixedWindow}
}

// table has a bounded number of entries. One that is evicted between find and the hit does no harm: the
// hit then is like that of one more client.
type table[T codec.Value] struct {
	seed   maphash.Seed
	max    int // entries per shard
	shards [tableShards]tableShard[T]
}

type tableShard[T codec.Value] struct {
	mu      sync.RWMutex // guards entries
	entries map[entryKey]*entry[T]
}

func (t *table[T]) init(max int) {
	t.seed = maphash.MakeSeed()
	t.max = (max + tableShards - 1) / tableShards
	for i := range t.shards {
		t.shards[i].entries = make(map[entryKey]*entry[T])
	}
}

func (t *table[T]) shard(key string) *tableShard[T] {
	return &t.shards[maphash.String(t.seed, key)%tableShards]
}

// find returns the entry of k, or nil.
func (t *table[T]) find(k entryKey) *entry[T] {
	s := t.shard(k.key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.entries[k]
}

// add adds e and returns it, or returns the entry that was added meanwhile. If there are too
// many, it evicts an idle one, preferably one without an active window. Entries in use are
// not evicted, but there are no more of them than callers.
func (t *table[T]) add(e *entry[T]) *entry[T] {
	k := e.entryKey
	s := t.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.entries[k]; other != nil {
		return other
	}
	for len(s.entries) >= t.max && s.evict(time.Now()) {
	}
	s.entries[k] = e
	e.evicted.Store(false)
	return e
}

// remove removes e if it is idle and has no active window.
func (t *table[T]) remove(e *entry[T]) {
	k := e.entryKey
	s := t.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[k] == e && e.value(time.Now()) == worthless {
		delete(s.entries, k)
		e.evicted.Store(true)
	}
}

// keep adds e again if it was removed between find and a call that has opened a window. Otherwise
// the window would get another ID from the next entry.
func (t *table[T]) keep(e *entry[T]) {
	if e.evicted.Load() && e.windows.known.maybeOpen(time.Now()) {
		t.add(e)
	}
}

// of returns what identifies the entries of a key.
func (t *table[T]) of(key string) (all []entryKey) {
	s := t.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for k := range s.entries {
		if k.key == key {
			all = append(all, k)
		}
	}
	return all
}

// len returns the number of entries.
func (t *table[T]) len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		n += len(s.entries)
		s.mu.RUnlock()
	}
	return n
}

// entryValue is what is lost if an entry is evicted.
type entryValue uint8

const (
	worthless entryValue = iota // nothing
	active                      // a window, which would have to be looked up
	inUse                       // there are callers
)

func (e *entry[T]) value(now time.Time) entryValue {
	if e.coalescer.Busy() {
		return inUse
	}
	if e.windows.known.maybeOpen(now) {
		return active
	}
	return worthless
}

// evict removes the entry with the least value of a few, picked at random. It returns false
// if all of them are in use.
func (s *tableShard[T]) evict(now time.Time) bool {
	var victim entryKey
	least, n := inUse, 0
	for k, e := range s.entries {
		if v := e.value(now); v < least {
			victim, least = k, v
		}
		if n++; n == evictionSample || least == worthless {
			break
		}
	}
	if least == inUse {
		return false
	}
	s.entries[victim].evicted.Store(true)
	delete(s.entries, victim)
	return true
}
