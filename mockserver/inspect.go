package mockserver

import (
	"fmt"
	"slices"
	"time"
)

// look returns the store as it is now, locked, and what unlocks it.
func (s *Server) look() (*store, func()) {
	s.mu.Lock()
	s.store.settle(s.clock.now())
	return &s.store, s.mu.Unlock
}

// Set puts in a counter that lives for ttl, in place of whatever is under key,
// a dead record included. Its unit is the finest in which ttl, rounded down,
// fits the value size; its expiry is exact. It panics where quota does not fit.
func (s *Server) Set(key string, quota uint64, ttl time.Duration) {
	st, unlock := s.look()
	defer unlock()
	if quota > st.max {
		panic(fmt.Sprintf("mockserver: Set: a quota of %d is over the largest value, %d", quota, st.max))
	}
	if r := st.records[key]; r != nil {
		st.remove(r)
	}
	ttl = max(ttl, 0)
	st.add(&record{key: key, quota: quota, unit: finest(ttl, st.max), expires: st.now + uint64(ttl)})
}

// Counter returns the live counter under key; false where there is none, be it
// that the key is missing, dead or a buffer.
func (s *Server) Counter(key string) (quota uint64, ok bool) {
	st, unlock := s.look()
	defer unlock()
	r := st.live([]byte(key))
	if r == nil || r.buffer {
		return 0, false
	}
	return r.quota, true
}

// TTL returns how long the live record under key has left, to the nanosecond: 0
// where it should be over and [LateExpiry] keeps it. It returns false where
// there is none.
func (s *Server) TTL(key string) (time.Duration, bool) {
	st, unlock := s.look()
	defer unlock()
	r := st.live([]byte(key))
	if r == nil {
		return 0, false
	}
	if r.expires <= st.now {
		return 0, true
	}
	return time.Duration(min(r.expires-st.now, 1<<63-1)), true
}

// Delete removes whatever is under key, a dead record included, and reports
// whether there was something.
func (s *Server) Delete(key string) bool {
	st, unlock := s.look()
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
	st, unlock := s.look()
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

// Expired returns how many records have expired naturally, and were not removed
// by a PURGE, [Server.Delete] or [Server.Set] before. On a real server each one
// is a risk (H12).
func (s *Server) Expired() int {
	st, unlock := s.look()
	defer unlock()
	return st.expired
}

// LockedUp reports whether the server has locked itself (H12): it takes
// connections and requests, executes none and never answers, until a
// [Server.Restart]. It can happen only with [LockUp] on, in the model after
// each run of the expiry timer: where a record expired 10 s or more late, or
// where something else falls due within 10 µs after the run, the time that the
// run is taken to last. A grace ends like a TTL, so that one record's grace can
// collide with another's TTL.
func (s *Server) LockedUp() bool {
	st, unlock := s.look()
	defer unlock()
	return st.locked
}
