package memory

import (
	"crypto/sha256"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	// samples is the number of windows of which makeRoom picks one to remove.
	samples = 16
	// sweepPause, times the number of windows, is the time between two sweeps of a full shard.
	// A sweep takes about 50 ns per window, so made-up keys can't keep the processor busy.
	sweepPause = 200 * time.Microsecond
	// maxKey is the length of the longest key that is stored as it is.
	maxKey = 128
)

// shard is a part of the windows. Its mutex guards all of its fields.
type shard struct {
	mu         sync.Mutex
	closed     bool
	index      uint16    // in Backend.shards
	generation uint32    // of the window that was opened last
	lastEnd    timestamp // the end that timeOf returned last; hits on a hot key return it again
	nextSweep  int64     // when the next sweep may be made
	firstEnd   int64     // no window ends before this
	windows    tables
	reference  timestamp // the time from which other times of day are computed
	log        *log      // the times of sliding logs
	ahead      int64     // how far the wall clock is ahead of the shard's times
	calls      uint64

	_ [8]byte // up to the end of a cache line, so that neighbors share none
}

// locate returns the shard of a key, which does not depend on the limit, and sets k to the id of the
// window. The id of a long key has a hash of the key, so that made-up keys can't fill the
// memory. The hash is keyed with a secret, so that nobody can make up a short key that equals
// the hash of another key.
func (b *Backend) locate(key string, l *window.Limit, k *id) *shard {
	k.name, k.scale, k.kind = l.Name, l.Scale, kindOf(l) // one by one, like in locateUnnamed
	return b.locateKey(key, k)
}

// locateUnnamed is locate for a limit without a name.
func (b *Backend) locateUnnamed(key string, a window.Algorithm, scale time.Duration, k *id) *shard {
	k.name, k.scale, k.kind = "", scale, kind(a) // an id{…} would be copied, which takes 5 ns
	return b.locateKey(key, k)
}

// locateKey is locate for an id that lacks the key and the hash.
func (b *Backend) locateKey(key string, k *id) *shard {
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(b.secret + key))
		key = string(sum[:])
	}
	h := maphash.String(b.seed, key)
	k.key = key
	k.hash = b.mix(h, k.name, k.scale, k.kind)
	return &b.shards[h&uint64(len(b.shards)-1)]
}

// kindOf returns the kind of the records of a limit.
func kindOf(l *window.Limit) kind {
	if l.Name != "" {
		return kind(l.Algorithm) | named
	}
	return kind(l.Algorithm)
}

// mix returns the hash of an id whose key has the hash h. It does not use the bits that select
// the shard, which are the same for all keys of a shard.
func (b *Backend) mix(h uint64, name string, scale time.Duration, k kind) uint32 {
	if name != "" {
		h += maphash.String(b.seed, name)
	}
	return uint32((h + (uint64(scale)<<3+uint64(k))*0x9e3779b97f4a7c15) >> 32)
}

// idOf returns the id of a key's window with the limit and the algorithm of r.
func (b *Backend) idOf(key string, r record) id {
	_, name := r.text()
	k := id{key: key, name: string(name), scale: r.scale(), kind: r.kind() &^ shared}
	k.hash = b.mix(maphash.String(b.seed, key), k.name, k.scale, k.kind)
	return k
}

// find returns the record of k, or nil.
func (s *shard) find(k *id) record {
	t := s.windows.of(k)
	if slot := t.find(k); slot >= 0 {
		return t.at(slot)
	}
	return nil
}

// drop removes the record in a slot of a table, and its log.
func (s *shard) drop(t *table, slot int) {
	if r := t.at(slot); r.algorithm().logs {
		s.log.release(r)
	}
	t.remove(slot)
}

// compact frees the memory of tables and of the log that is mostly unused.
func (s *shard) compact() {
	s.windows.compact()
	s.log.compact(&s.windows)
}

// reset removes a window.
func (s *shard) reset(b *Backend, k *id) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.closed {
		return window.ErrClosed
	}
	t := s.windows.of(k)
	if slot := t.find(k); slot >= 0 {
		s.endWindow(b, k, t, slot)
		return nil
	}
	if s.lookShared(b, k) != nil {
		return b.errShared
	}
	return nil
}

// delete removes a key's windows of the given scales, or of all, and returns how many of them were active.
func (s *shard) delete(b *Backend, key string, scales []time.Duration) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.closed {
		return 0, window.ErrClosed
	}
	now, sharedKey := s.now(b), b.sharedKey(key)
	var c cursor // the shared records come last
	for t, slot := c.next(&s.windows); t != nil; t, slot = c.next(&s.windows) {
		if t.tags[slot] == 0 {
			continue
		}
		r := t.at(slot)
		want := key
		if r.isShared() {
			want = sharedKey
		}
		if string(r.key()) != want || len(scales) > 0 && !slices.Contains(scales, r.scale()) {
			continue
		}
		a := r.algorithm()
		active := a.active(r.entry(), now+s.shift(a))
		k := b.idOf(key, r)
		switch {
		case !r.isShared():
			s.endWindow(b, &k, t, slot)
			if active {
				n++
			}
		case active && s.find(&k) == nil:
			err = b.errShared
		}
	}
	return n, err
}

// endWindow ends the window of k, in a slot of a table. The mutex is held.
//
// If k would share an active count from then on, the record stays until others need the room, with the least
// start, which is a window that is over: otherwise the hits of others would be the key's.
func (s *shard) endWindow(b *Backend, k *id, t *table, slot int) {
	if other := *k; s.lookShared(b, &other) == nil {
		s.drop(t, slot)
		return
	}
	r := t.at(slot)
	if r.algorithm().logs {
		s.log.release(r)
	}
	r.set(entry{start: math.MinInt64, scale: k.scale})
	s.firstEnd = math.MinInt64 // it can make room
}

// makeRoom removes windows that are over. If there are none and the overflow is Evict, it
// removes the window with the fewest hits of a random sample. It removes that of own, which may be nil,
// only if the sample has no other. It returns false if it removed none. The mutex is held.
//
// As long as no window is over, a refusal takes constant time. If many windows are over, the
// sample has one of them. If few are, a sweep finds them.
func (s *shard) makeRoom(b *Backend, now int64, own record) bool {
	mayBeOver := now >= s.firstEnd
	if !mayBeOver && b.overflow == Share {
		return false
	}
	var t *table // nil if all windows are shared
	var victim int
	var over bool
	if s.windows.len() > 0 {
		t, victim, over = s.sample(b, now, own)
	}
	if !over && mayBeOver && now >= s.nextSweep && s.sweep(b, now) {
		return true
	}
	if !over && b.overflow == Share || t == nil {
		return false
	}
	s.drop(t, victim)
	return true
}

// sample picks random windows, of all tables with equal probability. It returns one that is
// over, or else the one with the fewest hits, as made-up keys have few.
func (s *shard) sample(b *Backend, now int64, own record) (t *table, victim int, over bool) {
	fewest := uint64(0)
	for range samples {
		u := s.windows.ofNth(rand.IntN(s.windows.len()))
		slot := rand.IntN(len(u.tags))
		for u.tags[slot] == 0 {
			slot = rand.IntN(len(u.tags))
		}
		e, a := u.at(slot).entry(), u.at(slot).algorithm()
		at := now + s.shift(a)
		var n uint64
		switch {
		case own != nil && &u.at(slot)[0] == &own[0]: // it may be new, and have no hits yet
			n = math.MaxUint64
		case !a.active(e, at):
			return u, slot, true
		default:
			n = a.count(e, at)
		}
		if t == nil || n < fewest {
			t, victim, fewest = u, slot, n
		}
	}
	return t, victim, false
}
