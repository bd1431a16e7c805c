package testkit

import (
	"context"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
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
func (b traced) Hit(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	w, err := b.Backend.Hit(ctx, key, l, n)
	if err == nil {
		b.decided(key, w.ID, w.Count, l.Max)
	}
	return w, err
}
