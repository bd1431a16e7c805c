package memory

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/window"
)

// LimitOf returns a limit without a name.
func LimitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// HitCount is what the fast path of a RateLimit calls for a hit.
func HitCount(b *Backend, ctx context.Context, key string, l window.Limit, n uint64) (
	count uint64, left, retry time.Duration, end time.Time, granted bool, err error) {
	return b.hitCount(ctx, key, l.Algorithm, l.Max, l.Scale, n)
}

// TakeCount is what the fast path of a RateLimit calls for a take.
func TakeCount(b *Backend, ctx context.Context, key string, l window.Limit, n uint64) (
	count uint64, left, retry time.Duration, end time.Time, granted bool, err error) {
	return b.takeCount(ctx, key, l.Algorithm, l.Max, l.Scale, n)
}

// Shares reports whether a key has no window of its own, and shares an active count.
func (b *Backend) Shares(key string, l window.Limit) bool {
	var k id
	s := b.locate(key, &l, &k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(&k) != nil {
		return false
	}
	return s.lookShared(b, &k) != nil
}

// locate returns the shard and the id of a window.
func locate(b *Backend, key string, l window.Limit) (s *shard, k id) {
	s = b.locate(key, &l, &k)
	return s, k
}
