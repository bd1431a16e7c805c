package backendtest_test

import (
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Faults that only two clients of one store show.
const (
	losesOfTwo    fault = "a count that another client has lowered is taken for another window"
	remembersFull fault = "a client that has found a window full refuses until its end"
)

// taker is a backend that takes.
type taker interface {
	window.Backend
	window.Taker
	window.Teller
}

// client is one of several clients of a store.
type client struct {
	taker
	fault fault

	mu   sync.Mutex // guards what follows
	seen map[plainID]window.Window
}

// clientOf returns a client of a store: the store itself, unless the fault is one of clients.
func clientOf(store taker, f fault) window.Backend {
	if f != losesOfTwo && f != remembersFull {
		return store
	}
	c := &client{taker: store, fault: f, seen: map[plainID]window.Window{}}
	if peeker, ok := store.(window.Peeker); ok {
		return struct {
			*client
			window.Peeker
			window.Checker
		}{c, peeker, store.(window.Checker)}
	}
	return c
}

func (c *client) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := plainID{key, scale}
	if w := c.seen[id]; c.fault == remembersFull && limit > 0 && w.Count >= limit && n > 0 {
		if now, err := c.Get(ctx, key, scale); err == nil && now.ExpiresAt.Equal(w.ExpiresAt) {
			w.Refused = now.Refused
			return w, false, nil
		}
	}
	w, granted, err := c.taker.Take(ctx, key, scale, limit, n)
	c.seen[id] = w
	return w, granted, err
}

func (c *client) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == losesOfTwo {
		if w, err := c.Get(ctx, key, scale); err != nil || w.Count < c.seen[plainID{key, scale}].Count {
			return false, err
		}
	}
	return c.taker.GiveBack(ctx, key, scale, id, n)
}
