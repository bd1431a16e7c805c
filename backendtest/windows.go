package backendtest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

func testEnd(t *testing.T, s Subject) {
	c := calls{t, s}
	scale := c.stretch(shortest)
	c.none(c.get("k", scale))
	c.Clock.Advance(c.stretch(30 * time.Millisecond))
	end := c.end(scale)
	c.want(c.hit("k", scale, 5, 1), 1, end)
	c.Clock.Advance(c.stretch(20 * time.Millisecond))
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

func testTimes(t *testing.T, s Subject) {
	c := calls{t, s}
	const scale = time.Minute
	want := func(w window.Window, start, updated time.Time) {
		t.Helper()
		if got := w.StartedAt; !got.IsZero() && c.wrongEnd(start, got) {
			t.Errorf("StartedAt is %v, want %v", got, start)
		}
		if got := w.UpdatedAt; !got.IsZero() && c.wrongEnd(updated, got) {
			t.Errorf("UpdatedAt is %v, want %v", got, updated)
		}
	}
	for range 2 {
		c.Clock.Advance(7 * time.Second)
		opened := c.Clock.Now()
		start := c.Algorithm.Start(opened, scale)
		want(c.inc("k", scale, 1), start, opened)
		c.Clock.Advance(time.Second)
		want(c.get("k", scale), start, opened)
		want(c.hit("k", scale, 10, 1), start, opened.Add(time.Second))
		c.Clock.Advance(time.Second)
		want(c.get("k", scale), start, opened.Add(time.Second))
		now := c.Clock.Now()
		want(c.set("k", scale, 1), c.Algorithm.Start(now, scale), now)
		want(c.get("k", scale), c.Algorithm.Start(now, scale), now)
		c.Clock.Advance(2 * scale)
	}
}

func testLargest(t *testing.T, s Subject) {
	c := calls{t, s}
	const largest = math.MaxUint64
	c.want(c.set("k", time.Minute, largest-1), largest-1, c.end(time.Minute))
	c.want(c.inc("k", time.Minute, 1), largest, c.end(time.Minute))
	c.want(c.inc("k", time.Minute, 1), largest, c.end(time.Minute))
	if !s.RefusesHits {
		c.want(c.hit("k", time.Minute, largest, largest), largest, c.end(time.Minute))
	}
	c.want(c.get("k", time.Minute), largest, c.end(time.Minute))
}

func testIndependence(t *testing.T, s Subject) {
	c := calls{t, s}
	long := strings.Repeat("k", 5000)
	keys := []string{
		"", "a", "A", " a", "a ", "a:1", "1:a", "a\x00", "é", "e\u0301", "\xff", "\xfe", "{a}", "*",
		"a1", "0a", // with scales of 1 s, 10 s and 11 s, simple concatenation gives equal names
		strings.Repeat("k", 255), strings.Repeat("k", 256), long, long + "1", "1" + long,
	}
	scales := []time.Duration{time.Second, 2 * time.Second, 10 * time.Second, 11 * time.Second, time.Minute}
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
	c.want(c.set("k", scale, 3), 3, c.end(scale))
	c.want(c.get("k", scale), 3, c.end(scale))
	c.want(c.inc("k", scale, 2), 5, c.end(scale))
	c.want(c.set("k", scale, 0), 0, c.end(scale))
	end := c.end(scale)
	c.want(c.get("k", scale), 0, end)
	c.Clock.Advance(end.Sub(c.Clock.Now()))
	c.none(c.get("k", scale))
	c.want(c.set("k", scale, 50), 50, c.end(scale))
	w := c.hit("k", scale, 10, 1)
	if w.Count != 51 && (!s.SkipsDenied || w.Count != 50) {
		t.Errorf("a hit on a window of 50 hits returns count %d, want 51", w.Count)
	}
	c.want(c.set("k", scale, 2), 2, c.end(scale))
	c.want(c.hit("k", scale, 10, 1), 3, c.end(scale))
}

func testDelete(t *testing.T, s Subject) {
	c := calls{t, s}
	const short = 30 * time.Second
	scales := []time.Duration{short, time.Minute, 2 * time.Minute}
	fill := func() {
		for _, scale := range scales {
			c.inc("k", scale, 1)
			c.inc("other", scale, 1)
			c.inc("k1", scale, 1)
		}
	}
	fill()
	end := c.end(short)
	c.reset("k", time.Minute)
	c.none(c.get("k", time.Minute))
	c.want(c.get("k", short), 1, end)
	c.want(c.inc("k", time.Minute, 1), 1, c.end(time.Minute))
	c.reset("unknown", time.Minute)

	count := func(want, got int) {
		t.Helper()
		if got != want {
			t.Errorf("%d windows were deleted, want %d", got, want)
		}
	}
	count(2, c.delete("k", short, 2*time.Minute))
	c.none(c.get("k", short))
	count(0, c.delete("k", short))
	count(1, c.delete("k"))
	count(0, c.delete("k"))
	count(0, c.delete("unknown"))
	fill()
	count(3, c.delete("k"))
	for _, scale := range scales {
		c.none(c.get("k", scale))
		if c.get("other", scale).Count == 0 || c.get("k1", scale).Count == 0 {
			t.Errorf("the window of another key is gone")
		}
	}
	c.Clock.Advance(10 * time.Minute)
	count(0, c.delete("other"))
}
