package memory

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/window"
)

// LimitOf returns a limit without a name.
func LimitOf(a window.Algorithm, scale time.Duration, limit uint64) window.Limit {
	return window.Limit{Max: limit, Scale: scale, Algorithm: a}
}

// Decide makes a hit or a take as a RateLimit does: at once, if that is possible, and otherwise by a method.
func Decide(b *Backend, ctx context.Context, hit bool, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if n > 0 && n <= l.Max {
		op := fastpath.Take
		if hit {
			op = fastpath.Hit
		}
		count, left, retry, end, id, granted, ok := (*decider)(b).Decide(ctx, key, l.Algorithm, l.Max, l.Scale, n, op, l.Burst, l.Name)
		if ok {
			return window.Window{Count: count, Left: left, RetryAfter: retry, ExpiresAt: end, ID: id, Refused: !granted}, nil
		}
	}
	if !hit {
		return b.Take(ctx, key, l, n)
	}
	if w, err = b.Hit(ctx, key, l, n); w.Count > l.Max && !w.Refused {
		w.Refused, w.RetryAfter = true, w.Left // as the RateLimit decides
	}
	return w, err
}

// TakeLocked makes a take with the mutex of the shard, as all are made that Decide does not make.
func TakeLocked(b *Backend, ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.call(ctx, take, key, &l, n)
}

// Shares reports whether a key has no window of its own, and shares an active count.
func (b *Backend) Shares(key string, l window.Limit) bool {
	var k windowID
	s := b.locate(key, l.Algorithm, l.Scale, l.Name, &k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(&k) != nil {
		return false
	}
	return s.lookShared(b, &k) != nil
}

// locate returns the shard and the id of a window.
func locate(b *Backend, key string, l window.Limit) (s *shard, k windowID) {
	s = b.locate(key, l.Algorithm, l.Scale, l.Name, &k)
	return s, k
}
