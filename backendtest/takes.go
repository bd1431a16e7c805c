package backendtest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// takeTests are for backends with fixed windows and takes.
var takeTests = []subtest{
	takeTest("a take that is refused changes nothing", testRefusal),
	takeTest("a take of 0 counts nothing", testTakeOfNone),
	takeTest("takes of several windows are granted all or none", testAllOrNone),
	takeTest("several takes of one window count as their sum", testRepeatedWindow),
	takeTest("what is given back can be taken again", testGiveBack),
	takeTest("nothing is given back to another window", testGiveBackToAnother),
	takeTest("the ID of a window is that of no other", testIDs),
	takeTest("concurrent takes are granted up to the limit", testTakenLimit),
	takeTest("concurrent takes and give-backs leave what is held", testHeld),
	takeTest("concurrent takes of several windows leave what is granted", testHeldOfSeveral),
	takeTest("of takes in opposite order one is granted", testOppositeOrder),
	takeTest("takes that end windows and others overlap exceed no limit", testTakesAtTheEnd),
	takeTest("a number over MaxCount is refused by takes with window.ErrRange", testTakeRange, bounded),
	takeTest("random takes agree with a model", testTakeModel),
	takeTest("random calls of two clients agree with a model", testTakeModelOfTwo, twoClients),
	takeTest("calls of two clients at once leave what is held", testTwoAtOnce, twoClients),
}

// takeTest returns a test of takes.
func takeTest(name string, f func(takes), more ...need) subtest {
	return subtest{name, func(t *testing.T, s Subject) { f(newTakes(t, s)) }, append([]need{fixed, having("Take")}, more...)}
}

// takes makes calls that must succeed.
type takes struct {
	calls
	taker window.Taker // nil if the backend is none
}

// newTakes returns calls of a backend that must be a window.Taker, unless it leaves that out.
func newTakes(t *testing.T, s Subject) takes {
	taker, ok := s.Backend.(window.Taker)
	if _, without := s.Without["Take"]; !ok && !without {
		t.Fatalf("%T is no window.Taker", s.Backend)
	}
	return takes{calls{t, s}, taker}
}

// clients returns c, and the same for the second backend on its store if there is one.
func (c takes) clients() []takes {
	if c.Second == nil {
		return []takes{c}
	}
	second := c.Subject
	second.Backend = c.Second
	return []takes{c, newTakes(c.T, second)}
}

func (c takes) take(key string, scale time.Duration, limit, n uint64) (window.Window, bool) {
	c.Helper()
	w, granted, err := c.taker.Take(c.Context(), key, scale, limit, n)
	if err != nil {
		c.Fatalf("Take(%q, %v, %d, %d): %v", key, scale, limit, n, err)
	}
	return w, granted
}

// granted fails the test unless a take is granted.
func (c takes) granted(key string, scale time.Duration, limit, n uint64) window.Window {
	c.Helper()
	w, granted := c.take(key, scale, limit, n)
	if !granted {
		c.Errorf("Take(%q, %v, %d, %d) is refused, the window is %+v", key, scale, limit, n, w)
	}
	return w
}

// refused fails the test unless a take is refused.
func (c takes) refused(key string, scale time.Duration, limit, n uint64) window.Window {
	c.Helper()
	w, granted := c.take(key, scale, limit, n)
	if granted {
		c.Errorf("Take(%q, %v, %d, %d) is granted, the window is %+v", key, scale, limit, n, w)
	}
	return w
}

func (c takes) takeAll(limits ...window.Limit) ([]window.Window, bool) {
	c.Helper()
	windows := make([]window.Window, len(limits))
	granted, err := c.taker.TakeAll(c.Context(), limits, windows)
	if err != nil {
		c.Fatalf("TakeAll(%+v): %v", limits, err)
	}
	return windows, granted
}

// giveBack gives back, and reports whether the window has got it. If the window is open, it must,
// unless the backend MayLose.
func (c takes) giveBack(key string, scale time.Duration, id int64, n uint64, open bool) bool {
	c.Helper()
	ok, err := c.taker.GiveBack(c.Context(), key, scale, id, n)
	if err != nil {
		c.Fatalf("GiveBack(%q, %v, %d, %d): %v", key, scale, id, n, err)
	}
	if ok != open && (ok || !c.MayLose) {
		c.Errorf("GiveBack(%q, %v, %d, %d) returns %v, want %v", key, scale, id, n, ok, open)
	}
	return ok
}

func testRefusal(c takes) {
	const scale = time.Minute
	end := c.end(scale)
	c.want(c.granted("k", scale, 10, 8), 8, end)
	c.Clock.Advance(time.Second)
	for range 3 {
		c.want(c.refused("k", scale, 10, 5), 8, end)
		c.want(c.refused("k", scale, 8, 1), 8, end)
		c.want(c.refused("k", scale, 5, 2), 8, end)
		c.want(c.refused("k", scale, 5, 6), 8, end)
		c.want(c.get("k", scale), 8, end)
	}
	c.want(c.granted("k", scale, 10, 2), 10, end)
	c.want(c.refused("k", scale, 10, 1), 10, end)
	c.want(c.granted("k", scale, 11, 1), 11, end)
	c.Clock.Advance(end.Sub(c.Clock.Now()))
	c.none(c.refused("k", scale, 10, 11))
	c.none(c.refused("k", scale, 0, 1))
	c.none(c.get("k", scale))
	c.want(c.granted("k", scale, 10, 10), 10, c.end(scale))

	c.want(c.set("set", scale, 50), 50, c.end(scale))
	c.want(c.refused("set", scale, 49, 1), 50, c.end(scale))
	c.want(c.hit("set", scale, 60, 1), 51, c.end(scale))
	c.want(c.granted("set", scale, 60, 9), 60, c.end(scale))
	if t := c.get("other", scale); t != (window.Window{}) {
		c.Errorf("another key has window %+v", t)
	}
}

func testTakeOfNone(c takes) {
	const scale = time.Minute
	c.none(c.granted("k", scale, 5, 0))
	c.none(c.granted("k", scale, 0, 0))
	c.none(c.get("k", scale))
	c.hit("k", scale, 5, 5)
	c.want(c.granted("k", scale, 5, 0), 5, c.end(scale))
	c.want(c.refused("k", scale, 4, 0), 5, c.end(scale))
	windows, granted := c.takeAll(window.Limit{Key: "none", Scale: scale, Limit: 5}, window.Limit{Key: "k", Scale: scale, Limit: 6, N: 1})
	if !granted {
		c.Errorf("the takes are refused")
	}
	c.none(windows[0])
	c.none(c.get("none", scale))
	c.want(windows[1], 6, c.end(scale))
}

// spread returns takes of 1 of several windows of the limit, whose keys and scales differ.
func spread(limit uint64) []window.Limit {
	limits := make([]window.Limit, 6)
	for i := range limits {
		limits[i] = window.Limit{Key: fmt.Sprint("k", i/2), Scale: time.Duration(1+i%2) * time.Minute, Limit: limit, N: 1}
	}
	return limits
}

func testAllOrNone(c takes) {
	if windows, granted := c.takeAll(); !granted || len(windows) != 0 {
		c.Errorf("no takes are refused")
	}
	limits := spread(10)
	for n := range uint64(3) {
		windows, granted := c.takeAll(limits...)
		if !granted {
			c.Errorf("the takes are refused: %+v", windows)
		}
		for i, w := range windows {
			c.want(w, n+1, c.end(limits[i].Scale))
		}
	}
	for i := range limits { // each of them refuses all
		limits := spread(10)
		limits[i].Limit = 3
		windows, granted := c.takeAll(limits...)
		if granted {
			c.Errorf("the takes are granted, although take %d is over its limit", i)
		}
		for i, w := range windows {
			c.want(w, 3, c.end(limits[i].Scale))
			c.want(c.get(limits[i].Key, limits[i].Scale), 3, c.end(limits[i].Scale))
		}
	}
	// A refusal opens no window, wherever the take is that is refused.
	for _, refusing := range []int{0, 1, 2} {
		limits := []window.Limit{{Key: "new1", N: 1}, {Key: "new2", N: 2}, {Key: "new3", N: 3}}
		for i := range limits {
			limits[i].Scale, limits[i].Limit = time.Minute, 3
		}
		limits[refusing].Key = "k0"
		windows, granted := c.takeAll(limits...)
		if granted {
			c.Errorf("the takes are granted")
		}
		for i := range limits {
			if i != refusing {
				c.none(windows[i])
				c.none(c.get(limits[i].Key, time.Minute))
			}
		}
	}
}

func testRepeatedWindow(c takes) {
	const scale = time.Minute
	three := window.Limit{Key: "k", Scale: scale, Limit: 10, N: 3}
	four := window.Limit{Key: "k", Scale: scale, Limit: 7, N: 4}
	if windows, granted := c.takeAll(three, four); !granted {
		c.Errorf("takes of 3 and 4 of 7 are refused")
	} else {
		c.want(windows[0], 7, c.end(scale))
		c.want(windows[1], 7, c.end(scale))
	}
	if _, granted := c.takeAll(three, window.Limit{Key: "k", Scale: scale, Limit: 10, N: 1}); granted {
		c.Errorf("takes of 3 and 1 with 3 left are granted")
	}
	c.want(c.get("k", scale), 7, c.end(scale))
	if _, granted := c.takeAll(window.Limit{Key: "new", Scale: scale, Limit: 6, N: 3}, window.Limit{Key: "new", Scale: scale, Limit: 10, N: 4}); granted {
		c.Errorf("takes of 3 and 4 of 6 are granted")
	}
	c.none(c.get("new", scale))
}

func testGiveBack(c takes) {
	const scale = time.Minute
	end := c.end(scale)
	w := c.granted("k", scale, 10, 10)
	c.Clock.Advance(time.Millisecond)
	if c.giveBack("k", scale, w.ID, 4, true) {
		c.want(c.get("k", scale), 6, end)
		c.want(c.refused("k", scale, 10, 5), 6, end)
		c.want(c.granted("k", scale, 10, 4), 10, end)
	}
	c.want(c.refused("k", scale, 10, 1), 10, end)
	if c.giveBack("k", scale, w.ID, 10, true) { // all of it
		c.want(c.get("k", scale), 0, end)
		c.want(c.granted("k", scale, 10, 3), 3, end)
		c.want(c.hit("k", scale, 10, 1), 4, end)
	}
	c.giveBack("k", scale, w.ID, 0, true)
	windows, _ := c.takeAll(window.Limit{Key: "a", Scale: scale, Limit: 5, N: 5}, window.Limit{Key: "b", Scale: scale, Limit: 5, N: 2})
	if c.giveBack("a", scale, windows[0].ID, 2, true) {
		c.want(c.get("a", scale), 3, windows[0].ExpiresAt)
		c.want(c.get("b", scale), 2, windows[1].ExpiresAt)
	}
}

func testGiveBackToAnother(c takes) {
	const scale, limit = time.Minute, 10
	for name, end := range map[string]func(key string){
		"its end":         func(string) { c.Clock.Advance(scale) },
		"Reset":           func(key string) { c.reset(key, scale) },
		"Delete":          func(key string) { c.delete(key, scale) },
		"Delete of all":   func(key string) { c.delete(key) },
		"Set":             func(key string) { c.set(key, scale, 4) },
		"Set to the same": func(key string) { c.set(key, scale, 8) },
	} {
		w := c.granted(name, scale, limit, 8)
		end(name)
		before := c.get(name, scale)
		c.giveBack(name, scale, w.ID, 8, false)
		if got := c.get(name, scale); got != before {
			c.Errorf("after %s and a give-back the window is %+v, it was %+v", name, got, before)
		}
		next := c.granted(name, scale, limit, 2)
		c.giveBack(name, scale, w.ID, 8, false)
		c.want(c.get(name, scale), next.Count, next.ExpiresAt)
	}
	w := c.granted("k", scale, limit, 5)
	c.granted("k", 2*scale, limit, 5)
	c.granted("other", scale, limit, 5)
	c.giveBack("none", scale, w.ID, 5, false)
	c.none(c.get("none", scale))
	c.giveBack("k", scale, w.ID+1, 5, false)
	c.giveBack("k", scale, 0, 5, false)
	c.want(c.get("k", scale), 5, w.ExpiresAt)
	c.want(c.get("k", 2*scale), 5, c.end(2*scale))
	c.want(c.get("other", scale), 5, c.end(scale))
}

func testIDs(c takes) {
	const scale = time.Minute
	seen := map[int64]string{}
	for round := range 50 {
		w := c.granted("k", scale, 100, 1)
		for name, id := range map[string]int64{
			"a take": w.ID, "a refused take": c.refused("k", scale, 1, 1).ID, "Hit": c.hit("k", scale, 100, 1).ID,
			"Inc": c.inc("k", scale, 1).ID, "Get": c.get("k", scale).ID,
		} {
			if id == 0 || id != w.ID {
				c.Errorf("the ID is %d after %s, and was %d when the window opened", id, name, w.ID)
			}
		}
		if before, ok := seen[w.ID]; ok {
			c.Fatalf("the window after %s has the ID %d of an earlier one", before, w.ID)
		}
		switch round % 4 {
		case 0:
			c.reset("k", scale)
			seen[w.ID] = "a Reset"
		case 1:
			seen[w.ID] = "Set"
			id := c.set("k", scale, 0).ID
			if id == 0 || seen[id] != "" {
				c.Errorf("Set returns the ID %d", id)
			}
			seen[id] = "Set"
			c.reset("k", scale)
		case 2:
			c.Clock.Advance(scale)
			seen[w.ID] = "the end of another"
		default:
			c.delete("k")
			seen[w.ID] = "Delete"
		}
	}
}

func testTakenLimit(c takes) {
	limit := c.bounded(1000)
	var held atomic.Uint64
	concurrently(20_000, func(i int) {
		n := uint64(1 + i%3)
		w, granted, err := c.taker.Take(c.Context(), "k", time.Hour, limit, n)
		if err != nil {
			c.Errorf("Take: %v", err)
		}
		if w.Count > limit {
			c.Errorf("the count is %d, the limit %d", w.Count, limit)
		}
		if granted {
			held.Add(n)
		}
	})
	if held.Load() != limit {
		c.Errorf("%d are granted of %d", held.Load(), limit)
	}
	c.want(c.get("k", time.Hour), limit, c.get("k", time.Hour).ExpiresAt)
}

// testHeld gives back half of what is granted, and counts hits as well.
func testHeld(c takes) {
	held := takeAndGiveBack(c.clients()[:1], "k", c.bounded(200), true)
	if n := c.get("k", time.Hour).Count; n != held {
		c.Errorf("the count is %d, and %d are held", n, held)
	}
}

// takeAndGiveBack takes, and gives most of what is granted back, with all clients at one time. If asked,
// it also calls Inc. It returns how many are held in the end.
func takeAndGiveBack(clients []takes, key string, limit uint64, withInc bool) uint64 {
	var held, lost atomic.Int64
	concurrently(20_000, func(i int) {
		c, n := clients[i%len(clients)], uint64(1+i%5)
		if withInc && i%10 == 0 && i < 500 {
			if _, err := c.Backend.Inc(c.Context(), key, time.Hour, 1); err != nil {
				c.Errorf("Inc: %v", err)
			}
			held.Add(1)
			return
		}
		w, granted, err := c.taker.Take(c.Context(), key, time.Hour, limit, n)
		if err != nil {
			c.Errorf("Take: %v", err)
		}
		if !granted {
			return
		}
		held.Add(int64(n))
		if i/goroutines%8 == 7 {
			return
		}
		ok, err := c.taker.GiveBack(c.Context(), key, time.Hour, w.ID, n)
		if err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		if ok {
			held.Add(-int64(n))
		} else {
			lost.Add(1)
		}
	})
	if c := clients[0]; lost.Load() > 0 && c.Algorithm != window.TokenBucket {
		c.Errorf("GiveBack returns false %d times", lost.Load())
	}
	return uint64(held.Load())
}

func testHeldOfSeveral(c takes) {
	limit := c.bounded(150)
	var held [4]atomic.Int64
	key := func(i int) string { return fmt.Sprint("k", i) }
	concurrently(10_000, func(i int) {
		a, b := i%4, (i+1+i/4%3)%4
		limits := []window.Limit{
			{Key: key(a), Scale: time.Hour, Limit: limit, N: uint64(1 + i%2)},
			{Key: key(b), Scale: time.Hour, Limit: limit, N: uint64(1 + i%3)},
		}
		windows := make([]window.Window, 2)
		granted, err := c.taker.TakeAll(c.Context(), limits, windows)
		if err != nil {
			c.Errorf("TakeAll: %v", err)
		}
		if !granted {
			return
		}
		for j, k := range []int{a, b} {
			n := limits[j].N
			held[k].Add(int64(n))
			if windows[j].Count > limit {
				c.Errorf("the count is %d, the limit %d", windows[j].Count, limit)
			}
			if i/goroutines%4 == 3 {
				continue
			}
			ok, err := c.taker.GiveBack(c.Context(), key(k), time.Hour, windows[j].ID, n)
			if err != nil || !ok && !c.MayLose {
				c.Errorf("GiveBack returns %v, %v", ok, err)
			}
			if ok {
				held[k].Add(-int64(n))
			}
		}
	})
	for k := range held {
		if n := c.get(key(k), time.Hour).Count; int64(n) != held[k].Load() {
			c.Errorf("the count of key %d is %d, and %d are held", k, n, held[k].Load())
		}
	}
}

func testOppositeOrder(c takes) {
	for round := range 50 {
		a := window.Limit{Key: fmt.Sprint("a", round), Scale: time.Hour, Limit: 1, N: 1}
		b := window.Limit{Key: fmt.Sprint("b", round), Scale: time.Hour, Limit: 1, N: 1}
		var grants atomic.Int64
		concurrently(16, func(i int) {
			limits := []window.Limit{a, b}
			if i%2 == 0 {
				limits = []window.Limit{b, a}
			}
			granted, err := c.taker.TakeAll(c.Context(), limits, make([]window.Window, 2))
			if err != nil {
				c.Errorf("TakeAll: %v", err)
			}
			if granted {
				grants.Add(1)
			}
		})
		if grants.Load() != 1 {
			c.Fatalf("%d of 16 takes of the same two windows are granted, want 1", grants.Load())
		}
	}
}

// testTakesAtTheEnd makes takes and Resets while the clock advances, and gives some of what was
// granted back when the window may be over. Whatever a give-back finds, no window grants more than
// its limit.
func testTakesAtTheEnd(c takes) {
	const scale = time.Minute
	limit := c.bounded(20)
	type holder struct {
		id   int64
		end  time.Time
		n    uint64
		back bool
	}
	held := make([]holder, 6000)
	giveBack := func(h *holder) {
		over := c.Clock.Now().Sub(h.end) >= 0
		var err error
		if h.back, err = c.taker.GiveBack(c.Context(), "k", scale, h.id, h.n); err != nil || h.back && over {
			c.Errorf("GiveBack returns %v, %v after the end of the window", h.back, err)
		}
	}
	concurrently(len(held), func(i int) {
		// Every goroutine gives back some of its own.
		if before := i - 4*goroutines; i/goroutines%3 > 0 && before >= 0 && held[before].n > 0 {
			giveBack(&held[before])
		}
		switch {
		case rand.IntN(8) == 0:
			c.Clock.Advance(scale / 3)
			return
		case rand.IntN(50) == 0:
			if err := c.Backend.Reset(c.Context(), "k", scale); err != nil {
				c.Errorf("Reset: %v", err)
			}
			return
		}
		n := uint64(1 + i%7)
		w, granted, err := c.taker.Take(c.Context(), "k", scale, limit, n)
		if err != nil {
			c.Errorf("Take: %v", err)
		}
		if !granted {
			return
		}
		held[i] = holder{id: w.ID, end: w.ExpiresAt, n: n}
	})
	sums := map[int64]uint64{}
	for _, h := range held {
		if h.n > 0 && !h.back {
			sums[h.id] += h.n
		}
	}
	for id, sum := range sums {
		if sum > limit {
			c.Errorf("%d are held of window %d, whose limit is %d", sum, id, limit)
		}
	}
	if len(sums) < 3 {
		c.Errorf("there were %d windows", len(sums))
	}
}

func testTakeRange(c takes) {
	over := c.MaxCount + 1
	_, _, err := c.taker.Take(c.Context(), "k", time.Minute, over, 1)
	c.wantRange("Take with a limit", over, err)
	limits := []window.Limit{{Key: "a", Scale: time.Minute, Limit: 1, N: 1}, {Key: "k", Scale: time.Minute, Limit: over, N: 1}}
	_, err = c.taker.TakeAll(c.Context(), limits, make([]window.Window, 2))
	c.wantRange("TakeAll with a limit", over, err)
	c.none(c.get("a", time.Minute))
	c.none(c.get("k", time.Minute))
	w, granted := c.take("k", time.Minute, c.MaxCount, c.MaxCount)
	if !granted || w.Count != c.MaxCount {
		c.Errorf("a take of MaxCount is %v, %+v", granted, w)
	}
}
