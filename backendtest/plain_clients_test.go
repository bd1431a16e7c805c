package backendtest_test

import (
	"context"
	"sync"

	"github.com/throttr-go/throttr/window"
)

// Faults that only two clients of one store show.
const (
	losesOfTwo    fault = "a count that another client has lowered is taken for another window"
	remembersFull fault = "a client that has found a window full refuses until its end"
)

// client is one of several clients of a store.
type client struct {
	window.Backend
	fault fault

	mu   sync.Mutex // guards what follows
	seen map[plainID]window.Window
}

// clientOf returns a client of a store: the store itself, unless the fault is one of clients.
func clientOf(store *plain, f fault) window.Backend {
	if f != losesOfTwo && f != remembersFull {
		return store
	}
	return &client{Backend: store, fault: f, seen: map[plainID]window.Window{}}
}

func (c *client) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := plainID{key: key, name: l.Name, scale: l.Scale, algorithm: l.Algorithm}
	if w := c.seen[id]; c.fault == remembersFull && l.Max > 0 && w.Count >= l.Max {
		if now, err := c.Peek(ctx, key, l, n); err == nil && now.ExpiresAt.Equal(w.ExpiresAt) {
			w.Refused, w.RetryAfter = true, now.Left
			return w, nil
		}
	}
	w, err := c.Backend.Take(ctx, key, l, n)
	c.seen[id] = w
	return w, err
}

func (c *client) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == losesOfTwo {
		if w, err := c.Peek(ctx, key, l, 0); err != nil || w.Count < c.seen[plainID{key: key, name: l.Name, scale: l.Scale, algorithm: l.Algorithm}].Count {
			return false, err
		}
	}
	return c.Backend.GiveBack(ctx, key, l, n, id)
}
