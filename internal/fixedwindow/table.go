package fixedwindow

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/slot"
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

// limit returns a limit whose counts have this name and scale.
func (count countKey) limit() window.Limit {
	return window.Limit{Name: count.name, Max: 1, Scale: count.scale, Algorithm: window.FixedWindow}
}

// countState is what a backend remembers of a count: the open window, as far as is known, and what is queued for it.
// Other clients use the same records, the slots A and B.
type countState struct {
	countKey
	records
	backend *Backend
	server  int   // the index of the key's server
	link    *link // to that server
	janitor *janitor

	mu    sync.Mutex // guards known and queue
	known known      // changes only while the queue is served, and in learnUnlessKnown
	queue queue

	// The goroutine that serves the queue uses what follows: INSERTs that have failed since a window was seen, and when
	// the last one did. Their name is in its grace (H1), or other clients were faster.
	failed   int
	failedAt time.Time

	duty duty // of the janitor, whose mutex guards it
}

func newState(b *Backend, bands slot.Bands, count countKey) *countState {
	server := b.Pick(count.key)
	return &countState{
		countKey: count, records: records{&bands, slotNames(&bands, count.key, count.name)},
		backend: b, server: server, link: b.links[server][classOf(bands.Guard)], janitor: b.janitors[server],
		known: known{Window: slot.Window{Slot: slot.B}}, // so that the first lookup begins with A
	}
}

// table has the states of counts. Those whose records are to be removed stay, and their number has a bound of its own;
// of the others there are few more than max. If a state is evicted between find and the hit, that does no harm: the hit
// then is like that of one more client, and if it opens a window, the state is added again.
type table struct {
	seed   maphash.Seed
	max    int // counts per shard, beside those that can't be evicted
	shards [tableShards]tableShard
}

type tableShard struct {
	mu     sync.RWMutex // guards states
	states map[countKey]*countState
}

func (t *table) init(max int) {
	t.seed = maphash.MakeSeed()
	t.max = (max + tableShards - 1) / tableShards
	for i := range t.shards {
		t.shards[i].states = make(map[countKey]*countState)
	}
}

func (t *table) shard(key string) *tableShard {
	return &t.shards[maphash.String(t.seed, key)%tableShards]
}

// find returns the state of a count, or nil.
func (t *table) find(count countKey) *countState {
	shard := t.shard(count.key)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.states[count]
}

// add adds s and returns it, or returns the state that is there. If there are too many, it evicts idle ones,
// preferably without an active window.
func (t *table) add(s *countState) *countState {
	shard := t.shard(s.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if other := shard.states[s.countKey]; other != nil {
		return other
	}
	for len(shard.states) >= t.max && shard.evict(time.Now()) {
	}
	shard.states[s.countKey] = s
	return s
}

// remove removes s if it is idle and has no active window.
func (t *table) remove(s *countState) {
	shard := t.shard(s.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.states[s.countKey] == s && s.worth(time.Now()) == worthless {
		delete(shard.states, s.countKey)
	}
}

// of returns what identifies the counts of a key.
func (t *table) of(key string) (all []countKey) {
	shard := t.shard(key)
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	for count := range shard.states {
		if count.key == key {
			all = append(all, count)
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
		n += len(shard.states)
		shard.mu.RUnlock()
	}
	return n
}

// worth is what would be lost if a state were evicted.
type worth uint8

const (
	worthless worth = iota // nothing
	active                 // a window, which would have to be looked up
	inUse                  // there are callers, or records to remove
)

func (s *countState) worth(now time.Time) worth {
	if s.busy() || s.janitor.owes(s) {
		return inUse
	}
	if k := s.current(); k.maybeOpen(now) {
		return active
	}
	return worthless
}

// evict removes the state with the least worth of a few, picked at random. It returns false
// if all of them are in use.
func (shard *tableShard) evict(now time.Time) bool {
	var victim countKey
	least, n := inUse, 0
	for count, s := range shard.states {
		if v := s.worth(now); v < least {
			victim, least = count, v
		}
		if n++; n == evictionSample || least == worthless {
			break
		}
	}
	if least == inUse {
		return false
	}
	delete(shard.states, victim)
	return true
}
