package memory

import (
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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

// shard is a part of the windows. Its mutex guards all of its fields, but the table can be read without it.
// A call locks the mutex first, then those of records. With one of a record alone, it locks no other.
type shard struct {
	table atomic.Pointer[table]
	index uint16 // in Backend.shards
	_     [54]byte

	mu         sync.Mutex // in another cache line than the table
	closed     bool
	generation uint32 // of the window that was opened last
	windows    int    // records that are in use and not shared
	shares     int    // shared records
	nextSweep  int64  // when the next sweep may be made
	firstEnd   int64  // no window ends before this
	log        *log   // the times of sliding logs
	calls      uint64 // that are not in records

	last, ahead int64 // the time that was read last, and how far the wall clock was ahead of it
	_           [48]byte
}

// locate returns the shard of a key, which does not depend on the limit, and sets k to the id of the
// window. The id of a long key has a hash of the key, so that made-up keys can't fill the
// memory. The hash is keyed with a secret, so that nobody can make up a short key that equals
// the hash of another key.
func (b *Backend) locate(key string, a window.Algorithm, scale time.Duration, name string, k *windowID) *shard {
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(b.secret + key))
		key = string(sum[:])
	}
	k.name, k.scale, k.kind = name, scale, kind(a) // an windowID{…} would be copied, which takes 5 ns
	h := b.setKey(k, key)
	return &b.shards[h&uint64(len(b.shards)-1)]
}

// now returns the time. The mutex is held.
func (s *shard) now(b *Backend) (int64, *reference) {
	now, ref := b.clock.now()
	back := s.last - now
	if max(back, back+s.ahead-ref.ahead) >= int64(window.MinScale) {
		s.firstEnd, s.nextSweep = math.MinInt64, math.MinInt64 // windows may be over that start in the future
	}
	s.last, s.ahead = now, ref.ahead
	return now, ref
}

// find returns the record of k, or nil. The mutex is held.
func (s *shard) find(k *windowID) *record {
	if r := s.table.Load().find(k); r != nil && !r.dead {
		return r
	}
	return nil
}

// insert returns a new record for k, which has none. There is room. The mutex is held.
func (s *shard) insert(k *windowID) *record {
	if k.kind&shared != 0 {
		s.shares++
	} else {
		s.windows++
	}
	return s.table.Load().insert(k)
}

// drop removes a record, and its log. Both mutexes are held.
func (s *shard) drop(r *record) {
	if r.algorithm().logs {
		s.log.release(r)
	}
	if r.kind&shared != 0 {
		s.shares--
	} else {
		s.windows--
	}
	r.dead = true
	s.count(r)
}

// count moves the number of the calls that have used a record alone to the shard. Both mutexes are held.
func (s *shard) count(r *record) {
	s.calls += uint64(r.calls)
	r.calls = 0
}

// all calls f with all records, with their mutexes locked. The mutex is held.
func (s *shard) all(f func(r *record) (more bool)) {
	t := s.table.Load()
	t.all(0, len(t.records), f)
}

// reset removes a window.
func (s *shard) reset(b *Backend, k *windowID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.closed {
		return window.ErrClosed
	}
	if r := s.find(k); r != nil {
		r.mu.Lock()
		s.endWindow(b, k, r)
		r.mu.Unlock()
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
	now, ref := s.now(b)
	sharedKey, t := b.sharedKey(key), s.table.Load()
	s.all(func(r *record) bool {
		isShared := r.kind&shared != 0
		if isShared && !t.hasKey(r, sharedKey) || !isShared && !t.hasKey(r, key) || len(scales) > 0 && !slices.Contains(scales, r.scale) {
			return true
		}
		a := r.algorithm()
		active := a.active(r.state(), now+ref.shift(a))
		k := windowID{scale: r.scale, kind: r.kind &^ (long | shared)}
		_, k.name = t.keyOf(r)
		b.setKey(&k, key)
		switch {
		case !isShared:
			s.endWindow(b, &k, r)
			if active {
				n++
			}
		case active && s.find(&k) == nil:
			err = b.errShared
		}
		return true
	})
	return n, err
}

// endWindow ends the window of k, in a record. Both mutexes are held.
//
// If k would share an active count from then on, the record stays until others need the room, with the least
// start, which is a window that is over: otherwise the hits of others would be the key's.
func (s *shard) endWindow(b *Backend, k *windowID, r *record) {
	if other := *k; s.lookShared(b, &other) == nil {
		s.drop(r)
		return
	}
	if r.algorithm().logs {
		s.log.release(r)
	}
	r.set(state{start: math.MinInt64})
	s.firstEnd = math.MinInt64 // it can make room
}

// makeRoom removes windows that are over. If there are none and the overflow is Evict, it
// removes the window with the fewest hits of a random sample. It returns false if it removed none. The mutex
// is held.
//
// As long as no window is over, a refusal takes constant time. If many windows are over, the
// sample has one of them. If few are, a sweep finds them.
func (s *shard) makeRoom(b *Backend, now int64, ref *reference) bool {
	mayBeOver := now >= s.firstEnd
	if !mayBeOver && b.overflow == Share {
		return false
	}
	victim, over := s.sample(now, ref)
	if !over && mayBeOver && now >= s.nextSweep && s.sweep(now, ref) {
		return true
	}
	return victim != nil && (over || b.overflow == Evict) && s.dropSampled(victim, over, now, ref)
}

// dropSampled removes a record, unless it was over in the sample and is not any more, as a call that needs no lock of
// the shard has used the bucket since then. The mutex is held.
func (s *shard) dropSampled(r *record, over bool, now int64, ref *reference) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.algorithm(); over && a.active(r.state(), now+ref.shift(a)) {
		return false
	}
	s.drop(r)
	return true
}

// sample examines the windows after random cells, or all of a small table. It returns one that is over, or else the
// one with the fewest hits, as made-up keys have few; or nil if there are none.
func (s *shard) sample(now int64, ref *reference) (victim *record, over bool) {
	fewest, t := uint64(0), s.table.Load()
	small := len(t.records) <= samples
	for range samples {
		if over || len(t.records) == 0 {
			break
		}
		found, from := false, rand.IntN(len(t.records))
		examine := func(r *record) bool {
			if r.kind&shared != 0 {
				return true
			}
			found = true
			e, a := r.state(), r.algorithm()
			at := now + ref.shift(a)
			if over = !a.active(e, at); over {
				victim = r
			} else if n := a.count(e, at); victim == nil || n < fewest {
				victim, fewest = r, n
			}
			return small && !over
		}
		if small {
			t.all(0, len(t.records), examine)
			break
		}
		if t.all(from, len(t.records), examine); !found {
			t.all(0, from, examine)
		}
		if !found {
			break
		}
	}
	return victim, over
}
