package memory

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// evictSamples is how many windows are looked at for one that can go.
const evictSamples = 16

// id is what a window is known by.
type id struct {
	key   string
	scale time.Duration
}

// entry is a window. Times are nanoseconds since 1970.
type entry struct {
	start, updated int64
	count          uint64
}

// end returns when the window ends, or the largest time where that is beyond it.
func (e entry) end(scale time.Duration) int64 {
	if e.start > math.MaxInt64-int64(scale) {
		return math.MaxInt64
	}
	return e.start + int64(scale)
}

// active reports whether the window has not ended. One that starts in the future, which
// takes a clock that was turned back, is kept: it ends when it would have ended.
func (e entry) active(now int64, scale time.Duration) bool { return now < e.end(scale) }

func (e entry) window(now int64, scale time.Duration) window.Window {
	end := e.end(scale)
	return window.Window{
		Count:     e.count,
		ExpiresAt: time.Unix(0, end),
		Left:      time.Duration(end - now),
		StartedAt: time.Unix(0, e.start),
		UpdatedAt: time.Unix(0, e.updated),
	}
}

// shard is a part of the windows, with a mutex of its own.
type shard struct {
	mu      sync.Mutex
	windows map[id]entry
	closed  bool
	_       [40]byte // its neighbour's mutex is on another cache line
}

// shard returns the shard of a window: that of its key, whatever the scale.
func (b *Backend) shard(k id) *shard {
	return &b.shards[maphash.String(b.seed, k.key)&uint64(len(b.shards)-1)]
}

// remove removes a window and reports whether it was active.
func (s *shard) remove(k id, now int64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, ErrClosed
	}
	e, ok := s.windows[k]
	delete(s.windows, k)
	return ok && e.active(now, k.scale), nil
}

// removeKey removes a key's windows of all scales, and returns how many were active.
func (s *shard) removeKey(key string, now int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	n := 0
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

// makeRoom removes one of a few windows, picked at random: one that is over, or, if active
// ones may go, the one that ends first. It returns false if none may go.
func (s *shard) makeRoom(now int64, o Overflow) bool {
	var victim id
	first, n := int64(math.MaxInt64), 0
	for k, e := range s.windows {
		end := e.end(k.scale)
		if end < first || n == 0 {
			victim, first = k, end
		}
		if n++; n == evictSamples || end <= now {
			break
		}
	}
	if n == 0 || first > now && o == Refuse {
		return false
	}
	delete(s.windows, victim)
	return true
}
