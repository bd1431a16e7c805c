package testkit

import (
	"context"
	"time"

	"github.com/throttr-go/throttr"
)

// Traced returns a backend that calls f with the window in which each hit of b was decided.
func Traced(b throttr.Backend, f func(key string, window int64, count, limit uint64)) throttr.Backend {
	return traced{b, f}
}

type traced struct {
	throttr.Backend
	decided func(key string, window int64, count, limit uint64)
}

// Hit hits and calls decided.
func (b traced) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (throttr.Window, error) {
	w, err := b.Backend.Hit(ctx, key, scale, limit, increment)
	if err == nil {
		b.decided(key, w.ID, w.Count, limit)
	}
	return w, err
}
