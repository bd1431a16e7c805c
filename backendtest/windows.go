package backendtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func testEnd(t *testing.T, s Subject) {
	c := calls{t, s}
	const scale = 100 * time.Millisecond
	c.none(c.get("k", scale))
	c.Clock.Advance(30 * time.Millisecond)
	end := c.end(scale)
	c.want(c.hit("k", scale, 5, 1), 1, end)
	c.Clock.Advance(20 * time.Millisecond)
	c.want(c.hit("k", scale, 5, 2), 3, end)
	c.want(c.get("k", scale), 3, end)

	c.Clock.Advance(end.Sub(c.Clock.Now()) - time.Millisecond)
	c.want(c.inc("k", scale, 1), 4, end)
	c.Clock.Advance(time.Millisecond)
	c.none(c.get("k", scale))
	end = c.end(scale)
	c.want(c.hit("k", scale, 5, 1), 1, end)

	c.Clock.Advance(3 * scale)
	c.none(c.get("k", scale))
	c.want(c.inc("k", scale, 0), 0, c.end(scale))
}

func testIndependence(t *testing.T, s Subject) {
	c := calls{t, s}
	keys := []string{"", "a", "a:1", "1:a", "a\x00", "é", strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("k", 5000)}
	scales := []time.Duration{time.Second, 2 * time.Second, time.Minute}
	n := uint64(0)
	for _, key := range keys {
		for _, scale := range scales {
			n++
			c.want(c.inc(key, scale, n), n, c.end(scale))
		}
	}
	n = 0
	for _, key := range keys {
		for _, scale := range scales {
			n++
			c.want(c.get(key, scale), n, c.end(scale))
		}
	}
}

func testSet(t *testing.T, s Subject) {
	c := calls{t, s}
	const scale = time.Minute
	c.want(c.set("k", scale, 7), 7, c.end(scale))
	c.want(c.hit("k", scale, 10, 1), 8, c.end(scale))
	c.Clock.Advance(20 * time.Second)
	end := c.end(scale)
	c.want(c.set("k", scale, 3), 3, end)
	c.want(c.get("k", scale), 3, end)
	c.want(c.inc("k", scale, 2), 5, end)
	c.want(c.set("k", scale, 0), 0, end)
	c.Clock.Advance(end.Sub(c.Clock.Now()))
	c.none(c.get("k", scale))
	c.want(c.set("k", scale, 50), 50, c.end(scale))
	w := c.hit("k", scale, 10, 1)
	if w.Count <= 10 {
		t.Errorf("a hit on a full window is given count %d", w.Count)
	}
	c.want(c.set("k", scale, 2), 2, c.end(scale))
	c.want(c.hit("k", scale, 10, 1), 3, c.end(scale))
}

func testDelete(t *testing.T, s Subject) {
	c := calls{t, s}
	scales := []time.Duration{time.Second, time.Minute, 2 * time.Minute}
	fill := func() {
		for _, scale := range scales {
			c.inc("k", scale, 1)
			c.inc("other", scale, 1)
		}
	}
	fill()
	c.reset("k", time.Minute)
	c.none(c.get("k", time.Minute))
	c.want(c.get("k", time.Second), 1, c.end(time.Second))
	c.want(c.inc("k", time.Minute, 1), 1, c.end(time.Minute))
	c.reset("nobody", time.Minute)

	count := func(want, got int) {
		t.Helper()
		if got != want {
			t.Errorf("%d windows were deleted, want %d", got, want)
		}
	}
	count(2, c.delete("k", time.Second, 2*time.Minute))
	c.none(c.get("k", time.Second))
	count(0, c.delete("k", time.Second))
	count(1, c.delete("k"))
	count(0, c.delete("k"))
	count(0, c.delete("nobody"))
	fill()
	count(3, c.delete("k"))
	for _, scale := range scales {
		c.none(c.get("k", scale))
		if c.get("other", scale).Count == 0 {
			t.Errorf("the window of another key is gone")
		}
	}
	c.Clock.Advance(10 * time.Minute)
	count(0, c.delete("other"))
}

func testContext(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"Hit":    func() error { _, err := s.Backend.Hit(ctx, "k", time.Minute, 5, 1); return err },
		"Inc":    func() error { _, err := s.Backend.Inc(ctx, "k", time.Minute, 1); return err },
		"Get":    func() error { _, err := s.Backend.Get(ctx, "k", time.Minute); return err },
		"Set":    func() error { _, err := s.Backend.Set(ctx, "k", time.Minute, 5); return err },
		"Reset":  func() error { return s.Backend.Reset(ctx, "k", time.Minute) },
		"Delete": func() error { _, err := s.Backend.Delete(ctx, "k", time.Minute); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s returns %v", name, err)
		}
	}
	calls{t, s}.none(calls{t, s}.get("k", time.Minute))
}
