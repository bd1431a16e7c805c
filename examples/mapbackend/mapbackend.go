// Package mapbackend is a small backend: fixed windows in a map. docs/backends.md says what a backend
// of your own must do.
package mapbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Backend keeps fixed windows in a map. It does not remove windows that are over.
type Backend struct {
	window.Unimplemented // Exchange, List, ListPlaces, and the methods of later versions

	now     func() time.Time
	mu      sync.Mutex           // guards what follows
	windows map[id]window.Window // also some that are over
	last    int64                // ID of the window that was opened last
}

// id is what a window belongs to.
type id struct {
	key, name string
	scale     time.Duration
}

// New returns an empty backend with a clock.
func New(now func() time.Time) *Backend {
	return &Backend{now: now, windows: make(map[id]window.Window)}
}

// Check implements [window.Backend].
func (b *Backend) Check(l window.Limit) (t window.Traits, err error) {
	switch {
	case l.Algorithm != window.FixedWindow:
		err = fmt.Errorf("mapbackend: %w: %v", window.ErrUnsupported, l.Algorithm)
	case l.Scale < window.MinScale || l.Scale > window.MaxScale:
		err = fmt.Errorf("mapbackend: %w: %v", window.ErrScale, l.Scale)
	case l.Max > window.Unlimited || len(l.Name) > 64 ||
		strings.ContainsFunc(l.Name, func(r rune) bool { return r < ' ' || r > '~' }) ||
		l.Burst != 0 || l.Calendar != 0 || l.StartDay != 0 || l.Zone != "": // fields of other algorithms
		err = fmt.Errorf("mapbackend: %w: %v", window.ErrRange, l)
	}
	return t, err
}

// change calls f with the active window, or with the zero Window if there is none, and stores what it makes
// of it, in one step. This is what a store must be able to do.
func (b *Backend) change(ctx context.Context, key string, l window.Limit,
	f func(w *window.Window, now time.Time)) (w window.Window, err error) {
	if _, err := b.Check(l); err != nil {
		return w, err
	}
	if err := ctx.Err(); err != nil {
		return w, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.update(id{key, l.Name, l.Scale}, f), nil
}

// update is change for a caller that holds the mutex.
func (b *Backend) update(k id, f func(w *window.Window, now time.Time)) window.Window {
	w := b.windows[k]
	now := b.now()
	if !now.Before(w.ExpiresAt) {
		w = window.Window{}
	}
	f(&w, now)
	if w.ID == 0 {
		delete(b.windows, k)
		return w
	}
	w.Left = w.ExpiresAt.Sub(now)
	b.windows[k] = window.Window{Count: w.Count, ExpiresAt: w.ExpiresAt, ID: w.ID}
	return w
}

// add adds n to a window, and opens one if there is none. The caller holds the mutex.
func (b *Backend) add(w *window.Window, now time.Time, scale time.Duration, n uint64) {
	if w.ID == 0 {
		b.last++
		w.ID = b.last
		w.ExpiresAt = now.Add(scale)
	}
	w.Count = min(w.Count+min(n, window.Unlimited), window.Unlimited)
}

// refuse sets whether a take of n is refused, and whether it ever would not be.
func refuse(w *window.Window, l window.Limit, n uint64) {
	w.Refused = w.Count > l.Max || n > l.Max-w.Count
	if n > l.Max {
		w.RetryAfter = window.Never
	}
}

// Charge implements [window.Backend].
func (b *Backend) Charge(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.change(ctx, key, l, func(w *window.Window, now time.Time) { b.add(w, now, l.Scale, n) })
}

// Hit implements [window.Backend].
func (b *Backend) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.Charge(ctx, key, l, n)
}

// Take implements [window.Backend].
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.change(ctx, key, l, func(w *window.Window, now time.Time) {
		if refuse(w, l, n); !w.Refused && n > 0 {
			b.add(w, now, l.Scale, n)
		}
	})
}

// TakeAll implements [window.Backend]. Takes of one count are one take of their sum, under the lowest Max.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	sums := make(map[id]window.Take)
	for _, t := range takes {
		if _, err := b.Check(t.Limit); err != nil {
			return false, err
		}
		k := id{t.Key, t.Limit.Name, t.Limit.Scale}
		if sum, ok := sums[k]; ok {
			t.N = min(t.N, window.Unlimited) + min(sum.N, window.Unlimited)
			t.Limit.Max = min(t.Limit.Max, sum.Limit.Max)
		}
		sums[k] = t
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	states := make(map[id]window.Window)
	granted := true
	for k, t := range sums {
		states[k] = b.update(k, func(w *window.Window, _ time.Time) { refuse(w, t.Limit, t.N) })
		granted = granted && !states[k].Refused
	}
	for k, t := range sums {
		if granted && t.N > 0 {
			states[k] = b.update(k, func(w *window.Window, now time.Time) { b.add(w, now, k.scale, t.N) })
		}
	}
	for i, t := range takes {
		windows[i] = states[id{t.Key, t.Limit.Name, t.Limit.Scale}]
	}
	return granted, nil
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.change(ctx, key, l, func(w *window.Window, _ time.Time) { refuse(w, l, n) })
}

// Set implements [window.Backend].
func (b *Backend) Set(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return b.change(ctx, key, l, func(w *window.Window, now time.Time) {
		*w = window.Window{}
		b.add(w, now, l.Scale, n)
	})
}

// GiveBack implements [window.Backend].
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (ok bool, err error) {
	_, err = b.change(ctx, key, l, func(w *window.Window, _ time.Time) {
		if ok = w.ID == id && id != 0; ok {
			w.Count -= min(n, w.Count)
		}
	})
	return ok, err
}

// Reset implements [window.Backend].
func (b *Backend) Reset(ctx context.Context, key string, l window.Limit) error {
	_, err := b.change(ctx, key, l, func(w *window.Window, _ time.Time) { *w = window.Window{} })
	return err
}

// Delete implements [window.Backend].
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (n int, err error) {
	for _, scale := range scales {
		if _, err := b.Check(window.Limit{Scale: scale, Algorithm: window.FixedWindow}); err != nil {
			return 0, err
		}
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, w := range b.windows {
		if k.key == key && (len(scales) == 0 || slices.Contains(scales, k.scale)) {
			if b.now().Before(w.ExpiresAt) {
				n++
			}
			delete(b.windows, k)
		}
	}
	return n, nil
}
