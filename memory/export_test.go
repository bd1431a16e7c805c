package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// LimitOf returns a limit without a name.
func LimitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// limitPtr returns a pointer to l.
func limitPtr(l window.Limit) *window.Limit { return &l }

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
