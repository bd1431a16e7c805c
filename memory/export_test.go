package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// LimitOf returns a limit without a name.
func LimitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// MaxKeys returns how many windows there can be.
func MaxKeys(b *Backend) int64 { return int64(b.maxKeys) }

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
