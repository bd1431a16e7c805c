package fixedwindow

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	tableShards = 64
	// evictionSample is how many counts are considered for eviction at a time.
	evictionSample = 16
)

// countKey identifies a count.
type countKey struct {
	key, name string // the name is that of the limit
	scale     time.Duration
}

func keyOf(key string, l *window.Limit) countKey {
	return countKey{key: key, name: l.Name, scale: l.Scale}
}

// limit returns a limit with the key k.
func (k countKey) limit() window.Limit {
	return window.Limit{Name: k.name, Max: 1, Scale: k.scale, Algorithm: window.FixedWindow}
}

// table has what a backend remembers of counts. Those whose records are to be removed stay, and their number has a
// bound of its own; of the others there are few more than max. One that is evicted between find and the hit does no
// harm: the hit then is like that of one more client, and if it opens a window, the slots are added again.
type table struct {
	seed   maphash.Seed
	max    int // counts per shard, beside those that can't be evicted
	shards [tableShards]tableShard
}

type tableShard struct {
	mu     sync.RWMutex // guards counts
	counts map[countKey]*slots
}

func (t *table) init(max int) {
	t.seed = maphash.MakeSeed()
	t.max = (max + tableShards - 1) / tableShards
	for i := range t.shards {
		t.shards[i].counts = make(map[countKey]*slots)
	}
}

func (t *table) shard(key string) *tableShard {
	return &t.shards[maphash.String(t.seed, key)%tableShards]
}

// find returns the slots of k, or nil.
func (t *table) find(k countKey) *slots {
	s := t.shard(k.key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.counts[k]
}

// add adds e and returns it, or returns the slots that are there. If there are too many, it evicts idle ones,
// preferably without an active window.
func (t *table) add(e *slots) *slots {
	k := e.countKey
	s := t.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.counts[k]; other != nil {
		return other
	}
	for len(s.counts) >= t.max && s.evict(time.Now()) {
	}
	s.counts[k] = e
	return e
}

// remove removes e if it is idle and has no active window.
func (t *table) remove(e *slots) {
	k := e.countKey
	s := t.shard(k.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[k] == e && e.worth(time.Now()) == worthless {
		delete(s.counts, k)
	}
}

// of returns what identifies the counts of a key.
func (t *table) of(key string) (all []countKey) {
	s := t.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	for k := range s.counts {
		if k.key == key {
			all = append(all, k)
		}
	}
	return all
}

// len returns the number of counts.
func (t *table) len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		n += len(s.counts)
		s.mu.RUnlock()
	}
	return n
}

// worth is what would be lost if slots were evicted.
type worth uint8

const (
	worthless worth = iota // nothing
	active                 // a window, which would have to be looked up
	inUse                  // there are callers, or records to remove
)

func (e *slots) worth(now time.Time) worth {
	if e.busy() || e.janitor.owes(e) {
		return inUse
	}
	if k := e.current(); k.maybeOpen(now) {
		return active
	}
	return worthless
}

// evict removes the slots with the least worth of a few, picked at random. It returns false
// if all of them are in use.
func (s *tableShard) evict(now time.Time) bool {
	var victim countKey
	least, n := inUse, 0
	for k, e := range s.counts {
		if v := e.worth(now); v < least {
			victim, least = k, v
		}
		if n++; n == evictionSample || least == worthless {
			break
		}
	}
	if least == inUse {
		return false
	}
	delete(s.counts, victim)
	return true
}
