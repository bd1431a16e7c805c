package throttr

import "github.com/throttr-go/throttr/codec"

// Trace has f told in which bucket's window each hit was decided.
func Trace[T codec.Value](b *ServerBackend[T], f func(key string, bucket int64, count, limit uint64)) {
	b.traced = f
}

// Lanes returns how many windows b remembers.
func Lanes[T codec.Value](b *ServerBackend[T]) int { return b.lanes.len() }

// Owned returns how many records b has yet to remove.
func Owned[T codec.Value](b *ServerBackend[T]) int {
	n := 0
	for i := range b.purgers {
		p := &b.purgers[i]
		p.mu.Lock()
		n += p.claimed
		p.mu.Unlock()
	}
	return n
}
