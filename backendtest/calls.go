package backendtest

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// calls makes calls that must succeed.
type calls struct {
	*testing.T
	Subject
}

func (c calls) hit(key string, scale time.Duration, limit, increment uint64) window.Window {
	c.Helper()
	w, err := c.Backend.Hit(c.Context(), key, scale, limit, increment)
	if err != nil {
		c.Fatalf("Hit(%q, %v, %d, %d): %v", key, scale, limit, increment, err)
	}
	return c.asCounted(w, increment)
}

func (c calls) inc(key string, scale time.Duration, increment uint64) window.Window {
	c.Helper()
	w, err := c.Backend.Inc(c.Context(), key, scale, increment)
	if err != nil {
		c.Fatalf("Inc(%q, %v, %d): %v", key, scale, increment, err)
	}
	return w
}

func (c calls) get(key string, scale time.Duration) window.Window {
	c.Helper()
	w, err := c.Backend.Get(c.Context(), key, scale)
	if err != nil {
		c.Fatalf("Get(%q, %v): %v", key, scale, err)
	}
	return w
}

func (c calls) set(key string, scale time.Duration, count uint64) window.Window {
	c.Helper()
	w, err := c.Backend.Set(c.Context(), key, scale, count)
	if err != nil {
		c.Fatalf("Set(%q, %v, %d): %v", key, scale, count, err)
	}
	return w
}

func (c calls) reset(key string, scale time.Duration) {
	c.Helper()
	if err := c.Backend.Reset(c.Context(), key, scale); err != nil {
		c.Fatalf("Reset(%q, %v): %v", key, scale, err)
	}
}

func (c calls) delete(key string, scales ...time.Duration) int {
	c.Helper()
	n, err := c.Backend.Delete(c.Context(), key, scales...)
	if err != nil {
		c.Fatalf("Delete(%q, %v): %v", key, scales, err)
	}
	return n
}

// want fails the test unless w is an active window with the given count, and the given end if it is
// a fixed window.
func (c calls) want(w window.Window, count uint64, end time.Time) {
	c.Helper()
	now := c.Clock.Now()
	if w.Count != count {
		c.Errorf("Count is %d, want %d", w.Count, count)
	}
	if c.wrongEnd(end, w.ExpiresAt) && !c.Algorithm.Rolling() {
		c.Errorf("ExpiresAt is %v, want %v, or up to %v later", w.ExpiresAt, end, c.Exact)
	}
	if w.Left != w.ExpiresAt.Sub(now) || w.Left <= 0 {
		c.Errorf("Left is %v, ExpiresAt is %v, the time is %v", w.Left, w.ExpiresAt, now)
	}
	if !w.StartedAt.IsZero() && (w.StartedAt.After(now) || w.StartedAt.After(w.UpdatedAt)) {
		c.Errorf("StartedAt is %v, UpdatedAt is %v, the time is %v", w.StartedAt, w.UpdatedAt, now)
	}
	if w.UpdatedAt.After(now) {
		c.Errorf("UpdatedAt is %v, the time is %v", w.UpdatedAt, now)
	}
}

// none fails the test unless w is no window.
func (c calls) none(w window.Window) {
	c.Helper()
	if w != (window.Window{}) {
		c.Errorf("got window %+v, want none", w)
	}
}

// end returns when a window that opens now ends.
func (c calls) end(scale time.Duration) time.Time {
	return c.Algorithm.Start(c.Clock.Now(), scale).Add(scale)
}
