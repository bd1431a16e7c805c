package backendtest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// takeOf returns a take of 1.
func (c calls) takeOf(key string, scale time.Duration, most uint64) window.Take {
	return c.limit(scale, most).For(key, 1)
}

// spread returns takes of 1 whose keys, scales, names or algorithms differ.
func (c calls) spread(most uint64) (takes []window.Take) {
	for i := range 6 {
		takes = append(takes, c.takeOf(fmt.Sprint("k", i/2), time.Duration(1+i%2)*time.Minute, most))
	}
	takes = append(takes, c.named("n").takeOf("k0", time.Minute, most))
	for _, a := range c.algorithms() {
		if a != c.Algorithm {
			takes = append(takes, c.of(a).takeOf("k0", time.Minute, most))
		}
	}
	return takes
}

// counted returns calls of the limit of a take, whose Max may differ.
func (c calls) counted(t window.Take) calls {
	c = c.of(t.Limit.Algorithm)
	c.name, c.burst, c.most = t.Limit.Name, t.Limit.Burst, t.Limit.Max
	return c
}

func testAllOrNone(c calls) {
	if windows, granted := c.takeAll(); !granted || len(windows) != 0 {
		c.Errorf("no takes are refused")
	}
	takes := c.spread(10)
	var windows []window.Window
	for n := range uint64(3) {
		var granted bool
		if windows, granted = c.takeAll(takes...); !granted {
			c.Errorf("the takes are refused: %+v", windows)
		}
		for i, w := range windows {
			c := c.counted(takes[i])
			if c.want(w, n+1, c.end(takes[i].Limit.Scale)); w.ID == 0 || w.Refused {
				c.Errorf("take %d returns %+v", i, w)
			}
		}
	}
	for i := range takes { // each of them refuses all
		takes := c.spread(10)
		takes[i].N = 8
		windows, granted := c.takeAll(takes...)
		c.expect(!granted, "the takes are granted, although take %d is over its limit", i)
		for j, w := range windows {
			c := c.counted(takes[j])
			if w.Refused != (i == j) {
				c.Errorf("take %d is refused: take %d returns %+v", i, j, w)
			} else if w.Refused {
				c.retries(w, takes[j].Limit, takes[j].N)
			}
			c.state(w, 3)
			c.state(c.get(takes[j].Key, takes[j].Limit.Scale), 3)
		}
	}
	// A refusal opens no window, wherever the take is that is refused.
	for refusing := range takes {
		takes := c.spread(3)
		for i := range takes {
			takes[i].Key += "new"
		}
		takes[refusing].N = 4
		windows, granted := c.takeAll(takes...)
		c.expect(!granted, "the takes are granted")
		for i, t := range takes {
			c := c.counted(t)
			c.none(windows[i])
			c.none(c.get(t.Key, t.Limit.Scale))
			if w := windows[i]; w.Refused != (i == refusing) || w.Refused && w.RetryAfter != window.Never {
				c.Errorf("take %d of 4 of 3: take %d returns %+v", refusing, i, w)
			}
		}
	}
	for i, t := range takes {
		if c := c.counted(t); c.giveBack(t.Key, t.Limit.Scale, windows[i].ID, 1, true) {
			c.state(c.get(t.Key, t.Limit.Scale), 2)
		}
	}
}

func testRepeated(c calls) {
	const scale = time.Minute
	taken := func(want bool, takes ...window.Take) []window.Window {
		c.Helper()
		windows, granted := c.takeAll(takes...)
		for _, w := range windows {
			if granted != want || w.Refused != !want {
				c.Errorf("the takes %+v return %v, %+v, want %v", takes, granted, windows, want)
				break
			}
		}
		return windows
	}
	of := func(key string, most, burst, n uint64) window.Take {
		c.burst = burst
		return c.limit(scale, most).For(key, n)
	}
	for _, w := range taken(true, of("k", 10, 0, 3), of("k", 7, 0, 4)) {
		c.want(w, 7, c.end(scale))
	}
	c.want(c.upTo(7).get("k", scale), 7, c.end(scale))
	taken(false, of("k", 7, 0, 1), of("k", 10, 0, 1))
	c.want(c.upTo(7).get("k", scale), 7, c.end(scale))
	taken(true, of("second", 10, 0, 7))
	taken(false, of("second", 10, 0, 3), of("second", 10, 0, 1))
	c.want(c.get("second", scale), 7, c.end(scale))
	for _, takes := range [][]window.Take{{of("new", 6, 0, 3), of("new", 10, 0, 4)}, {of("new", 10, 0, 4), of("new", 6, 0, 3)}} {
		for _, w := range taken(false, takes...) {
			c.none(w)
		}
		c.none(c.get("new", scale))
	}
	windows := taken(true, of("b", 10, 0, 3), of("b", 10, 0, 4), of("b", 10, 0, 2))
	if c.giveBack("b", scale, windows[1].ID, 4, true) {
		c.want(c.get("b", scale), 5, c.end(scale))
	}
	if c.Algorithm == window.TokenBucket {
		taken(true, of("burst", 10, 20, 6), of("burst", 10, 12, 6))
		taken(false, of("burst", 10, 20, 1), of("burst", 10, 12, 1))
		taken(false, of("none", 10, 20, 6), of("none", 10, 0, 6))
		taken(true, of("burst", 10, 20, 4), of("burst", 10, 20, 4))
	}
	const most = window.Unlimited
	if c.MaxCount != 0 && c.MaxCount < most {
		return
	}
	taken(true, of("fits", most, 0, most/3), of("fits", most, 0, most/3), of("fits", most, 0, most/3))
	for _, held := range []uint64{0, 1} {
		key, other := fmt.Sprint("sum", held), fmt.Sprint("other", held)
		if held > 0 {
			if c.Algorithm == window.TokenBucket {
				break // a bucket of that size does not count single tokens
			}
			taken(true, of(key, most-1, 0, held), of(other, 10, 0, held))
		}
		for _, sum := range [][]uint64{{most, most}, {1 << 62, 1 << 62}, {1, most}, {1 << 62, 1 << 62, 1}, {most, 1, most}} { // they wrap
			takes := []window.Take{of(other, 10, 0, 1)}
			for _, n := range sum {
				takes = append(takes, of(key, most-1, 0, n))
			}
			windows, granted := c.takeAll(takes...)
			for i, w := range windows {
				c.expect(!granted && w.Count == held && w.Refused == (i > 0) && (w.RetryAfter == window.Never) == (i > 0),
					"%d are held, and the takes %+v return %v, %+v", held, takes, granted, windows)
			}
			c.expect(c.upTo(10).get(other, scale).Count == held, "a take that was refused has counted")
		}
	}
}

// testTakenLimit makes takes and hits.
func testTakenLimit(c calls) {
	l := c.limit(time.Hour, c.bounded(1000))
	var held atomic.Uint64
	concurrently(20_000, func(i int) {
		n := uint64(1 + i%3)
		call := c.Backend.Take
		if c.Algorithm.Rolling() && i%2 == 0 {
			call = c.Backend.Hit
		}
		w, err := call(c.Context(), "k", l, n)
		c.expect(err == nil && w.Count <= l.Max, "a take of %d of %d returns %+v, %v", n, l.Max, w, err)
		if !w.Refused {
			held.Add(n)
		}
	})
	c.expect(held.Load() == l.Max, "%d are granted of %d", held.Load(), l.Max)
	c.state(c.upTo(l.Max).get("k", time.Hour), l.Max)
}

// testHeld gives back most of what is granted, and charges as well.
func testHeld(c calls) {
	limit := c.bounded(250) - 50 // there is room for 50 charges
	c.holds("k", limit, takeAndGiveBack(c.clients()[:1], "k", limit))
}

// testTwoAtOnce makes takes, give-backs and charges of two clients at one time. Then both find what is
// held.
func testTwoAtOnce(c calls) {
	clients, limit := c.clients(), c.bounded(250)-50
	for round := range 2 {
		key := fmt.Sprint("k", round)
		held := takeAndGiveBack(clients, key, limit)
		for _, client := range clients {
			client.holds(key, limit, held)
		}
	}
	endWindows(clients, limit)
}

// holds fails the test unless the count of a window is what is held.
func (c calls) holds(key string, limit, held uint64) {
	c.Helper()
	w := c.upTo(limit).get(key, time.Hour)
	if c.Algorithm == window.TokenBucket && w.Count > held && w.Count <= limit {
		return // a bucket may give less back than was taken
	}
	c.expect(w.Count == held, "the count is %d, and %d are held", w.Count, held)
}

// takeAndGiveBack takes, and gives most of what is granted back, with all clients at one time. In fixed
// windows, it also charges. It returns how many are held in the end.
func takeAndGiveBack(clients []calls, key string, limit uint64) uint64 {
	var held, lost atomic.Int64
	concurrently(20_000, func(i int) {
		c, n := clients[i%len(clients)], uint64(1+i%5)
		l := c.limit(time.Hour, limit)
		if i%10 == 0 && i < 500 && !c.Algorithm.Rolling() {
			if _, err := c.Backend.Charge(c.Context(), key, l, 1); err != nil {
				c.Errorf("Charge: %v", err)
			}
			held.Add(1)
			return
		}
		w, err := c.Backend.Take(c.Context(), key, l, n)
		c.expect(err == nil, "Take: %v", err)
		if w.Refused {
			return
		}
		held.Add(int64(n))
		if i/goroutines%8 == 7 {
			return
		}
		ok, err := c.Backend.GiveBack(c.Context(), key, l, n, w.ID)
		c.expect(err == nil, "GiveBack: %v", err)
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

// endWindows has clients take and give back at one time while some of them call Reset and Set. Each of
// these calls makes room for the whole limit once more, and for no more than that. In the end, none of
// them has an effect any more.
func endWindows(clients []calls, limit uint64) {
	const scale, ends = time.Hour, 6
	c := clients[0].upTo(limit)
	l := c.limit(scale, limit)
	for round := range 3 {
		key := fmt.Sprint("ended", round)
		var held atomic.Int64
		concurrently(3000, func(i int) {
			c, n := clients[i%len(clients)], uint64(1+i%3)
			var err error
			if i%500 == 250 { // ends times
				if i%1000 == 250 {
					err = c.Backend.Reset(c.Context(), key, l)
				} else {
					_, err = c.Backend.Set(c.Context(), key, l, 0)
				}
				c.expect(err == nil, "Reset or Set: %v", err)
				return
			}
			w, err := c.Backend.Take(c.Context(), key, l, n)
			c.expect(err == nil && (w.Refused || w.Count <= limit), "Take returns %+v, %v", w, err)
			if w.Refused {
				return
			}
			back := false
			if i%4 > 0 {
				if back, err = c.Backend.GiveBack(c.Context(), key, l, n, w.ID); err != nil {
					c.Errorf("GiveBack: %v", err)
				}
			}
			if !back {
				held.Add(int64(n))
			}
		})
		if most := (ends + 1) * int64(limit); held.Load() > most {
			c.Errorf("round %d: %d are held, at most %d with a limit of %d and %d calls that end the window", round, held.Load(), most, limit, ends)
		}
		c.set(key, scale, 0)
		for n := range limit + 10 {
			client := int(n) % len(clients)
			if w := clients[client].take(key, scale, limit, 1); w.Refused != (n >= limit) {
				c.Fatalf("round %d: after Set to 0, take %d of %d, of client %d, returns %+v", round, n+1, limit, client, w)
			}
		}
		for i, client := range clients {
			if w := client.upTo(limit).get(key, scale); w.Count != limit {
				c.Errorf("round %d: client %d finds %+v, want a count of %d", round, i, w, limit)
			}
		}
	}
}

func testOppositeOrder(c calls) {
	for round := range 50 {
		a, b := c.takeOf(fmt.Sprint("a", round), time.Hour, 1), c.takeOf(fmt.Sprint("b", round), time.Hour, 1)
		var grants atomic.Int64
		concurrently(16, func(i int) {
			takes := []window.Take{a, b}
			if i%2 == 0 {
				takes = []window.Take{b, a}
			}
			granted, err := c.Backend.TakeAll(c.Context(), takes, make([]window.Window, 2))
			c.expect(err == nil, "TakeAll: %v", err)
			if granted {
				grants.Add(1)
			}
		})
		if grants.Load() != 1 {
			c.Fatalf("%d of 16 takes of the same two windows are granted, want 1", grants.Load())
		}
	}
}

func testGiveBackToAnother(c calls) {
	const scale, limit = time.Minute, 10
	for name, end := range map[string]func(key string){
		"its end":         func(string) { c.Clock.Advance(2*scale + c.Precision) },
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
		if got := c.get(name, scale); got.Count != before.Count {
			c.Errorf("after %s and a give-back the window is %+v, it was %+v", name, got, before)
		}
		next := c.granted(name, scale, limit, 2)
		c.giveBack(name, scale, w.ID, 8, false)
		c.state(c.get(name, scale), next.Count)
	}
	w := c.granted("k", scale, limit, 5)
	c.granted("k", 2*scale, limit, 5)
	c.granted("other", scale, limit, 5)
	c.giveBack("none", scale, w.ID, 5, false)
	c.none(c.get("none", scale))
	c.named("n").giveBack("k", scale, w.ID, 5, false)
	c.giveBack("k", scale, 0, 5, false)
	c.state(c.get("k", scale), 5)
	c.state(c.get("k", 2*scale), 5)
	c.state(c.get("other", scale), 5)
}

func testIDs(c calls) {
	const scale = time.Minute
	seen := map[int64]string{}
	for round := range 50 {
		w := c.granted("k", scale, 100, 1)
		for name, id := range map[string]int64{
			"a take": w.ID, "a refused take": c.refused("k", scale, 1, 1).ID, "Hit": c.hit("k", scale, 100, 1).ID, "Charge": c.charge("k", scale, 1).ID,
		} {
			c.expect(id != 0 && id == w.ID, "the ID is %d after %s, and was %d when the window opened", id, name, w.ID)
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
			c.expect(id != 0 && seen[id] == "", "Set returns the ID %d", id)
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

func testHeldOfSeveral(c calls) {
	limit := c.bounded(150)
	var held [4]atomic.Int64
	key := func(i int) string { return fmt.Sprint("k", i) }
	concurrently(10_000, func(i int) {
		a, b := i%4, (i+1+i/4%3)%4
		l := c.limit(time.Hour, limit)
		takes := []window.Take{l.For(key(a), uint64(1+i%2)), l.For(key(b), uint64(1+i%3))}
		windows := make([]window.Window, 2)
		granted, err := c.Backend.TakeAll(c.Context(), takes, windows)
		c.expect(err == nil, "TakeAll: %v", err)
		if !granted {
			return
		}
		for j, k := range []int{a, b} {
			n := takes[j].N
			held[k].Add(int64(n))
			c.expect(windows[j].Count <= limit, "the count is %d, the limit %d", windows[j].Count, limit)
			if i/goroutines%4 == 3 {
				continue
			}
			ok, err := c.Backend.GiveBack(c.Context(), key(k), l, n, windows[j].ID)
			c.expect(err == nil && (ok || c.MayLose), "GiveBack returns %v, %v", ok, err)
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

// testTakesAtTheEnd makes takes and Resets while the clock advances, and gives some of what was
// granted back when the window may be over. Whatever a give-back finds, no window grants more than
// its limit.
func testTakesAtTheEnd(c calls) {
	const scale = time.Minute
	limit := c.bounded(20)
	l := c.limit(scale, limit)
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
		if h.back, err = c.Backend.GiveBack(c.Context(), "k", l, h.n, h.id); err != nil || h.back && over {
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
			if err := c.Backend.Reset(c.Context(), "k", l); err != nil {
				c.Errorf("Reset: %v", err)
			}
			return
		}
		n := uint64(1 + i%7)
		w, err := c.Backend.Take(c.Context(), "k", l, n)
		c.expect(err == nil, "Take: %v", err)
		if w.Refused {
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
		c.expect(sum <= limit, "%d are held of window %d, whose limit is %d", sum, id, limit)
	}
	c.expect(len(sums) >= 3, "there were %d windows", len(sums))
}
