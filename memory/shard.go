package memory

import (
	"crypto/sha256"
	"hash/maphash"
	"math"
	"math/rand/v2"
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
	lastEnd    timestamp // the end that count returned last; hits on a hot key return it again
	nextSweep  int64     // when the next sweep may be made
	firstEnd   int64     // no window ends before this
	windows    tables
	reference  timestamp // the time from which other times of day are computed
	log        *log      // of the algorithm SlidingLog; nil otherwise
	readAt     int64     // when the clock was read, in nanoseconds of the monotonic clock since the origin
	ahead      int64     // how far the clock is ahead of the monotonic clock since the origin

	_ [8]byte // up to the end of a cache line, so that neighbors share none
}

// locate returns the shard of a key, which does not depend on the scale, and the id of the
// window. The id of a long key has a hash of the key, so that made-up keys can't fill the
// memory. The hash is keyed with a secret, so that nobody can make up a short key that equals
// the hash of another key.
func (b *Backend) locate(key string, scale time.Duration) (*shard, id) {
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(b.secret + key))
		key = string(sum[:])
	}
	h := maphash.String(b.seed, key)
	return &b.shards[h&uint64(len(b.shards)-1)], id{key, scale, mix(h, scale)}
}

// id returns the id of the window of a key that is stored as it is.
func (b *Backend) id(key string, scale time.Duration) id {
	return id{key, scale, mix(maphash.String(b.seed, key), scale)}
}

// mix returns the hash of an id whose key has the hash h. It does not use the bits that select
// the shard, which are the same for all keys of a shard.
func mix(h uint64, scale time.Duration) uint32 {
	return uint32((h + uint64(scale)*0x9e3779b97f4a7c15) >> 32)
}

// find returns the record of k, or nil.
func (s *shard) find(k id) record {
	t := s.windows.forKey(k.key)
	if slot := t.find(k); slot >= 0 {
		return t.at(slot)
	}
	return nil
}

// describe makes w describe a window. (A result would be copied.)
func (s *shard) describe(w *window.Window, e *entry, now int64) {
	at, base := s.reference.time, s.reference.nanos
	end := e.end()
	w.Count, w.ID = e.count, e.id()
	w.Left = minus(end, now)
	w.ExpiresAt = at.Add(minus(end, base))
	w.StartedAt = at.Add(minus(e.start, base))
	w.UpdatedAt = at.Add(minus(e.updated(), base))
}

// describeDropped makes w describe a window that is over.
func (s *shard) describeDropped(b *Backend, w *window.Window, e *entry, now int64) {
	if !b.rolling {
		s.describe(w, e, now)
		return
	}
	end := b.end(e)
	w.Left, w.ExpiresAt = minus(end, now), s.reference.time.Add(minus(end, s.reference.nanos))
}

// drop removes the record in a slot of a table, and its log.
func (s *shard) drop(t *table, slot int) {
	if s.log != nil {
		s.log.release(t.at(slot))
	}
	t.remove(slot)
}

// compact frees the memory of tables and of the log that is mostly unused.
func (s *shard) compact() {
	s.windows.compact()
	if s.log != nil {
		s.log.compact(&s.windows)
	}
}

// remove removes a window and reports whether it was active.
func (s *shard) remove(b *Backend, k id) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	t := s.windows.forKey(k.key)
	slot := t.find(k)
	if slot < 0 {
		if _, r := s.lookShared(b, k); r != nil {
			return false, b.errShared
		}
		return false, nil
	}
	return s.endWindow(b, k, t, slot, s.now(b)), nil
}

// endWindow ends the window of k in a slot of a table, and reports whether it was active. The mutex is held.
//
// If k would share an active count from then on, the record stays until others need the room, with the least
// start, which is a window that is over: otherwise the hits of others would be the key's.
func (s *shard) endWindow(b *Backend, k id, t *table, slot int, now int64) (active bool) {
	r := t.at(slot)
	e := r.entry()
	if _, shared := s.lookShared(b, k); shared == nil {
		s.drop(t, slot)
	} else {
		if s.log != nil {
			s.log.release(r)
		}
		r.set(entry{start: math.MinInt64, scale: k.scale})
		s.firstEnd = math.MinInt64 // it can make room
	}
	return b.active(&e, now)
}

// removeKey removes a key's windows of all scales, and returns how many of them were active.
func (s *shard) removeKey(b *Backend, key string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	n, now := 0, s.now(b)
	t := s.windows.forKey(key)
	for slot := len(t.tags) - 1; slot >= 0; slot-- {
		if t.tags[slot] != 0 && string(t.at(slot).key()) == key {
			if s.endWindow(b, b.id(key, t.at(slot).entry().scale), t, slot, now) {
				n++
			}
		}
	}
	if s.sharesAny(b, key) {
		return n, b.errShared
	}
	return n, nil
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
		e := u.at(slot).entry()
		var n uint64
		switch {
		case own != nil && &u.at(slot)[0] == &own[0]: // it may be new, and have no hits yet
			n = math.MaxUint64
		case !b.active(&e, now):
			return u, slot, true
		default:
			n = s.count(b, &e, now)
		}
		if t == nil || n < fewest {
			t, victim, fewest = u, slot, n
		}
	}
	return t, victim, false
}
