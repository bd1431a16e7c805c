package memory

import "time"

// Shares reports whether a key has no window of its own, and shares an active count.
func (b *Backend) Shares(key string, scale time.Duration) bool {
	s, k := b.locate(key, scale)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(k) != nil {
		return false
	}
	_, r := s.lookShared(b, k)
	return r != nil
}
