package memory

import (
	"crypto/sha256"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

const (
	// samples is how many windows are looked at for one that can go.
	samples = 16
	// sweepPause is how long a full shard that has been swept is left alone, for each of
	// its windows. A sweep takes some 50 ns for each, so that somebody who invents keys
	// can't keep the processor busy with them.
	sweepPause = 200 * time.Microsecond
	// maxKey is the length up to which a key is kept as it is.
	maxKey = 128
)

// shard is a part of the windows, with a mutex of its own.
type shard struct {
	mu        sync.Mutex
	closed    bool
	told      instant // the end that Count told last, as a hot key asks for the same again
	nextSweep int64   // when it may be swept again to make room
	firstEnd  int64   // no window ends before
	windows   tables
	anchor    instant // what times are told by

	_ [32]byte // to the end of a cache line, so that neighbours share none
}

// locate returns the shard of a key, whatever the scale, and what its window is known by.
// Of a long key, which somebody may have made up to fill the memory, that has a hash. The
// secret keeps them from making up a short key that is the hash of another.
func (b *Backend) locate(key string, scale time.Duration) (*shard, id) {
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(b.secret + key))
		key = string(sum[:])
	}
	h := maphash.String(b.seed, key)
	return &b.shards[h&uint64(len(b.shards)-1)], id{key, scale, mix(h, scale)}
}

// mix returns the hash of an id whose key has the hash h: bits of it that do not tell the
// shard, or all keys of a shard would want the same places.
func mix(h uint64, scale time.Duration) uint32 {
	return uint32((h + uint64(scale)*0x9e3779b97f4a7c15) >> 32)
}

// find returns the record of k, or nil.
func (s *shard) find(k id) record {
	t := s.windows.of(k.key)
	if i := t.find(k); i >= 0 {
		return t.at(i)
	}
	return nil
}

// tell puts into w what there is to know of a window. (To return it would copy it.)
func (s *shard) tell(w *window.Window, e entry, now int64) {
	at, base := s.anchor.time, s.anchor.nanos
	end := e.end()
	w.Count = e.count
	w.Left = minus(end, now)
	w.ExpiresAt = at.Add(minus(end, base))
	w.StartedAt = at.Add(minus(e.start, base))
	w.UpdatedAt = at.Add(minus(e.updated, base))
}

// remove removes a window and reports whether it was active.
func (s *shard) remove(b *Backend, k id) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	t := s.windows.of(k.key)
	i := t.find(k)
	if i < 0 {
		return false, nil
	}
	e := t.at(i).entry()
	t.remove(i)
	return e.active(s.now(b)), nil
}

// removeKey removes a key's windows of all scales, and returns how many were active.
func (s *shard) removeKey(b *Backend, key string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	n, now := 0, s.now(b)
	t := s.windows.of(key)
	for i := len(t.tags) - 1; i >= 0; i-- {
		if t.tags[i] != 0 && string(t.at(i).key()) == key {
			if e := t.at(i).entry(); e.active(now) {
				n++
			}
			t.remove(i)
		}
	}
	return n, nil
}

// makeRoom removes windows that are over, or, if an active one may go, the one with the
// fewest hits of a few picked at random. It returns false if none may go. The mutex is held.
//
// While none is over, a refusal costs nothing, whatever the number of windows. After that, a
// look at a few finds one if they are many; if they are few, it takes a sweep.
func (s *shard) makeRoom(b *Backend, now int64) bool {
	mayBeOver := now >= s.firstEnd
	if !mayBeOver && b.overflow == Refuse {
		return false
	}
	t, victim, over := s.sample(now)
	if !over && mayBeOver && now >= s.nextSweep && s.sweep(now) > 0 {
		return true
	}
	if !over && b.overflow == Refuse {
		return false
	}
	t.remove(victim)
	return true
}

// sample looks at a few windows at random, of all tables alike, and returns one that is
// over, or else the one with the fewest hits: keys that somebody invents have few.
func (s *shard) sample(now int64) (t *table, victim int, over bool) {
	fewest := uint64(0)
	for range samples {
		u := s.windows.holding(rand.IntN(s.windows.len()))
		i := rand.IntN(len(u.tags))
		for u.tags[i] == 0 {
			i = rand.IntN(len(u.tags))
		}
		e := u.at(i).entry()
		if !e.active(now) {
			return u, i, true
		}
		if t == nil || e.count < fewest {
			t, victim, fewest = u, i, e.count
		}
	}
	return t, victim, false
}
