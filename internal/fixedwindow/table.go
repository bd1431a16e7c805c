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

// table has the slots of counts. Those whose records are to be removed stay, and their number has a bound of its own; of
// the others there are few more than max. If slots are evicted between find and the hit, that does no harm: the hit then
// is like that of one more client, and if it opens a window, the slots are added again.
type table struct {
	seed   maphash.Seed
	max    int // counts per shard, beside those that can't be evicted
	shards [tableShards]tableShard
}

type tableShard struct {
	mu    sync.RWMutex // guards slots
	slots map[countKey]*slots
}

func (t *table) init(max int) {
	t.seed = maphash.MakeSeed()
	t.max = (max + tableShards - 1) / tableShards
	for i := range t.shards {
		t.shards[i].slots = make(map[countKey]*slots)
	}
}

func (t *table) shard(key string) *tableShard {
	return &t.shards[maphash.String(t.seed, key)%tableShards]
}

// find returns the slots of k, or nil.
func (t *table) find(k countKey) *slots {
	shard := t.shard(k.key)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.slots[k]
}

// add adds s and returns it, or returns the slots that are there. If there are too many, it evicts idle ones,
// preferably without an active window.
func (t *table) add(s *slots) *slots {
	k := s.countKey
	shard := t.shard(k.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if other := shard.slots[k]; other != nil {
		return other
	}
	for len(shard.slots) >= t.max && shard.evict(time.Now()) {
	}
	shard.slots[k] = s
	return s
}

// remove removes s if it is idle and has no active window.
func (t *table) remove(s *slots) {
	k := s.countKey
	shard := t.shard(k.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.slots[k] == s && s.worth(time.Now()) == worthless {
		delete(shard.slots, k)
	}
}

// of returns what identifies the counts of a key.
func (t *table) of(key string) (all []countKey) {
	shard := t.shard(key)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	for k := range shard.slots {
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
		shard := &t.shards[i]
		shard.mu.RLock()
		n += len(shard.slots)
		shard.mu.RUnlock()
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

func (s *slots) worth(now time.Time) worth {
	if s.busy() || s.janitor.owes(s) {
		return inUse
	}
	if k := s.current(); k.maybeOpen(now) {
		return active
	}
	return worthless
}

// evict removes the slots with the least worth of a few, picked at random. It returns false
// if all of them are in use.
func (shard *tableShard) evict(now time.Time) bool {
	var victim countKey
	least, n := inUse, 0
	for k, s := range shard.slots {
		if v := s.worth(now); v < least {
			victim, least = k, v
		}
		if n++; n == evictionSample || least == worthless {
			break
		}
	}
	if least == inUse {
		return false
	}
	delete(shard.slots, victim)
	return true
}
