package mockserver

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// lockStore locks the store and returns it as it is now, and what unlocks it.
func (s *Server) lockStore() (*store, func()) {
	s.mu.Lock()
	s.store.catchUp(s.clock.now())
	return &s.store, s.mu.Unlock
}

// ValueSize returns the width of quotas and amounts of time in bytes, see [WithValueSize].
func (s *Server) ValueSize() int {
	st, unlock := s.lockStore()
	defer unlock()
	return bits.Len64(st.max) / 8
}

// Set creates a counter that lives for ttl. It replaces whatever is under key, a dead
// record included. The counter's unit is the finest in which ttl, rounded down, fits the
// value size; its expiry is exact. Set panics if quota does not fit the value size, or if
// key is over 255 bytes long.
func (s *Server) Set(key string, quota uint64, ttl time.Duration) {
	st, unlock := s.lockStore()
	defer unlock()
	if len(key) > codec.MaxKey || quota > st.max {
		panic(fmt.Sprintf("mockserver: Set: a key has at most %d bytes, not %d, and a quota is at most %d, not %d",
			codec.MaxKey, len(key), st.max, quota))
	}
	if r := st.records[key]; r != nil {
		st.remove(r)
	}
	ttl = max(ttl, 0)
	st.add(&record{key: key, quota: quota, unit: finest(ttl, st.max), expires: st.now + uint64(ttl)})
}

// Counter returns the quota of the live counter under key. It returns false if there is
// none: the key is missing or dead, or it is a buffer's.
func (s *Server) Counter(key string) (quota uint64, ok bool) {
	st, unlock := s.lockStore()
	defer unlock()
	r := st.live([]byte(key))
	if r == nil || r.buffer {
		return 0, false
	}
	return r.quota, true
}

// TTL returns how long the live record under key has left, to the nanosecond: 0 for a
// record that [LateExpiry] keeps beyond its TTL. It returns false if there is none.
func (s *Server) TTL(key string) (time.Duration, bool) {
	st, unlock := s.lockStore()
	defer unlock()
	r := st.live([]byte(key))
	if r == nil {
		return 0, false
	}
	return time.Duration(min(max(r.expires, st.now)-st.now, 1<<63-1)), true
}

// Delete removes whatever is under key, a dead record included, and reports whether
// there was something.
func (s *Server) Delete(key string) bool {
	st, unlock := s.lockStore()
	defer unlock()
	r := st.records[key]
	if r == nil {
		return false
	}
	st.remove(r)
	return true
}

// Keys returns the keys of all live records, counters and buffers, sorted.
func (s *Server) Keys() []string {
	st, unlock := s.lockStore()
	defer unlock()
	keys := []string{}
	for key, r := range st.records {
		if !r.dead {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Expired returns how many records have expired by themselves, instead of being removed
// before by a PURGE, [Server.Delete] or [Server.Set]. On a real server each one is a risk
// (H12), so a test of a client may want to require that there are none.
func (s *Server) Expired() int {
	st, unlock := s.lockStore()
	defer unlock()
	return st.collector.expired
}

// LockedUp reports whether the server has locked up (H12), which only happens with
// [LockUp] on: it accepts connections and requests, and neither executes them nor
// responds until [Server.Restart].
func (s *Server) LockedUp() bool {
	st, unlock := s.lockStore()
	defer unlock()
	return st.collector.locked
}
