package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// LimitOf returns a limit without a name.
func LimitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// Shared returns the number of records that keys share.
func (b *Backend) Shared() (n int) {
	for i := range b.shards {
		n += b.shards[i].shared
	}
	return n
}

// Shares reports whether a key has no window of its own, and shares an active count.
func (b *Backend) Shares(key string, l window.Limit) bool {
	var x access
	x.locate(b, key, &l)
	x.at = b.clock.now()
	x.shard.mu.Lock()
	defer x.shard.mu.Unlock()
	x.find(b, &l)
	return x.shares()
}

// Locked reports whether a shard is in use by a call.
func Locked(b *Backend) bool {
	for i := range b.shards {
		if !b.shards[i].mu.TryLock() {
			return true
		}
		b.shards[i].mu.Unlock()
	}
	return false
}
