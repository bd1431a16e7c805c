package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// LimitOf returns a limit without a name.
func LimitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// What the fast path of RateLimit calls.
var (
	HitCount  = (*Backend).hitCount
	TakeCount = (*Backend).takeCount
)

// Shares reports whether a key has no window of its own, and shares an active count.
func (b *Backend) Shares(key string, l window.Limit) bool {
	s, k := b.locate(key, &l)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(k) != nil {
		return false
	}
	_, r := s.lookShared(b, k)
	return r != nil
}

// locate returns the shard and the id of a window.
func locate(b *Backend, key string, l window.Limit) (*shard, id) { return b.locate(key, &l) }
