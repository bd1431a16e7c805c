package memory

import (
	"crypto/sha256"
	"hash/maphash"
	"math"
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

// id is what a window is known by.
type id struct {
	key   string
	scale time.Duration
}

// id returns what key's window of the given scale is known by. Of a long key, which
// somebody may have made up to fill the memory, it has a hash. The secret keeps them from
// making up a short key that is the hash of another.
func (b *Backend) id(key string, scale time.Duration) id {
	if len(key) > maxKey {
		sum := sha256.Sum256([]byte(b.secret + key))
		key = string(sum[:])
	}
	return id{key, scale}
}

// entry is a window. Times are nanoseconds since the backend's origin.
type entry struct {
	start, updated int64
	count          uint64
}

// end returns when the window ends, or the largest time where that is beyond it.
func (e *entry) end(scale time.Duration) int64 {
	if e.start > math.MaxInt64-int64(scale) {
		return math.MaxInt64
	}
	return e.start + int64(scale)
}

// active reports whether the window has not ended. If the clock was turned back, to before
// the window's start, it goes on as long as one that opened now would overlap it: so no
// window has more than its limit, and no key is shut out for two scales.
func (e *entry) active(now int64, scale time.Duration) bool {
	return now < e.end(scale) && minus(e.start, now) < scale
}

// add adds to the count, which stays at the largest uint64.
func (e *entry) add(increment uint64, now int64) {
	e.updated = now
	if e.count += increment; e.count < increment {
		e.count = math.MaxUint64
	}
}

func (e *entry) window(now instant, scale time.Duration) window.Window {
	left := minus(e.end(scale), now.nanos)
	return window.Window{
		Count:     e.count,
		ExpiresAt: now.time.Add(left),
		Left:      left,
		StartedAt: now.time.Add(minus(e.start, now.nanos)),
		UpdatedAt: now.time.Add(minus(e.updated, now.nanos)),
	}
}

// minus returns a - b, or the largest or smallest Duration where that is beyond it.
func minus(a, b int64) time.Duration {
	d := a - b
	switch {
	case a >= b && d < 0:
		return math.MaxInt64
	case a < b && d >= 0:
		return math.MinInt64
	}
	return time.Duration(d)
}

// shard is a part of the windows, with a mutex of its own.
type shard struct {
	mu        sync.Mutex
	closed    bool
	windows   map[id]*entry
	firstEnd  int64 // no window ends before
	nextSweep int64 // when it may be swept again to make room

	_ [64]byte // what its neighbour writes is on another cache line
}

// shard returns the shard of a key, whatever the scale.
func (b *Backend) shard(key string) *shard {
	return &b.shards[maphash.String(b.seed, key)&uint64(len(b.shards)-1)]
}

// remove removes a window and reports whether it was active.
func (s *shard) remove(b *Backend, k id) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	e, ok := s.windows[k]
	delete(s.windows, k)
	return ok && e.active(b.instant().nanos, k.scale), nil
}

// removeKey removes a key's windows of all scales, and returns how many were active.
func (s *shard) removeKey(b *Backend, key string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	n, now := 0, b.instant().nanos
	for k, e := range s.windows {
		if k.key != key {
			continue
		}
		delete(s.windows, k)
		if e.active(now, k.scale) {
			n++
		}
	}
	return n, nil
}

// makeRoom removes windows that are over, or, if an active one may go, the one with the
// fewest hits of a few picked at random. It returns false if none may go. The mutex is held.
//
// While none is over, a refusal costs nothing, whatever the number of windows. After that, a
// look at a few finds one if they are many; if they are few, it takes a sweep.
func (s *shard) makeRoom(now int64, o Overflow) bool {
	mayBeOver := now >= s.firstEnd
	if !mayBeOver && o == Refuse {
		return false
	}
	victim, over := s.sample(now)
	if !over && mayBeOver && now >= s.nextSweep && s.sweep(now, 0, func(id, *entry) {}) > 0 {
		return true
	}
	if !over && o == Refuse {
		return false
	}
	delete(s.windows, victim)
	return true
}

// sample looks at a few windows, picked at random, and returns one that is over, or else
// the one with the fewest hits: keys that somebody invents have few.
func (s *shard) sample(now int64) (victim id, over bool) {
	n, fewest := 0, uint64(0)
	for k, e := range s.windows {
		if !e.active(now, k.scale) {
			return k, true
		}
		if n == 0 || e.count < fewest {
			victim, fewest = k, e.count
		}
		if n++; n == samples {
			break
		}
	}
	return victim, false
}
