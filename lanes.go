package throttr

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	laneShards = 64
	// laneSamples is how many lanes are looked at for one that can be forgotten.
	laneSamples = 16
)

// laneKey is what a window is known by.
type laneKey struct {
	key   string
	scale time.Duration
}

// laneTable remembers lanes, a bounded number of them. A lane that is forgotten while
// somebody still uses it does no harm: it then is as if there were one more client.
type laneTable[T codec.Value] struct {
	seed   maphash.Seed
	max    int // per shard
	shards [laneShards]laneShard[T]
}

type laneShard[T codec.Value] struct {
	mu    sync.RWMutex
	lanes map[laneKey]*lane[T]
}

func (t *laneTable[T]) init(max int) {
	t.seed = maphash.MakeSeed()
	t.max = (max + laneShards - 1) / laneShards
	for i := range t.shards {
		t.shards[i].lanes = make(map[laneKey]*lane[T])
	}
}

func (t *laneTable[T]) shard(k laneKey) *laneShard[T] {
	return &t.shards[maphash.String(t.seed, k.key)%laneShards]
}

// find returns the lane of k, or nil.
func (t *laneTable[T]) find(k laneKey) *lane[T] {
	s := t.shard(k)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.lanes[k]
}

// add remembers l, or returns the lane that was added in the meantime. If there are too
// many, an idle one is forgotten, rather one whose window is over. Lanes in use are not,
// but there are no more of them than callers.
func (t *laneTable[T]) add(l *lane[T]) *lane[T] {
	k := laneKey{l.key, l.timing.scale}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.lanes[k]; other != nil {
		return other
	}
	for len(s.lanes) >= t.max && s.evict() {
	}
	s.lanes[k] = l
	return l
}

// drop forgets l if it is idle and knows of no window.
func (t *laneTable[T]) drop(l *lane[T]) {
	k := laneKey{l.key, l.timing.scale}
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lanes[k] == l && l.use() == laneBlank {
		delete(s.lanes, k)
	}
}

// evict forgets one of a few lanes, picked at random, and returns false if all of them
// are busy.
func (s *laneShard[T]) evict() bool {
	var victim laneKey
	best, n := laneBusy, 0
	for k, l := range s.lanes {
		if use := l.use(); use < best {
			victim, best = k, use
		}
		if n++; n == laneSamples || best == laneBlank {
			break
		}
	}
	if best == laneBusy {
		return false
	}
	delete(s.lanes, victim)
	return true
}

// len returns the number of lanes.
func (t *laneTable[T]) len() int {
	n := 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		n += len(s.lanes)
		s.mu.RUnlock()
	}
	return n
}
