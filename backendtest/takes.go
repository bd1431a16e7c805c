package backendtest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// spread returns takes of 1 whose keys, scales, names, algorithms or calendars differ.
func (c calls) spread() (takes []window.Take) {
	for i := range 6 {
		takes = append(takes, c.on(fmt.Sprint("k", i/2)).in(time.Duration(1+i%2)*time.Minute).takeOf(1))
	}
	for i, kind := range c.in(time.Minute).kinds("", "n") {
		if i < 13 && kind.limit != c.in(time.Minute).limit {
			takes = append(takes, kind.on("k0").takeOf(1))
		}
	}
	return takes
}

// testAllOrNone takes of limits of all kinds together.
func testAllOrNone(c calls) {
	windows, granted := c.takeAll()
	c.expect(granted && len(windows) == 0, "no takes are refused")
	takes := c.spread()
	for n := range uint64(3) {
		windows, granted = c.takeAll(takes...)
		c.expect(granted, "the takes are refused: %+v", windows)
		for i, w := range windows {
			c.as(takes[i]).opened(w, n+1)
			c.expect(w.ID != 0 && !w.Refused, "take %d returns %+v", i, w)
		}
	}
	for refusing := range takes { // each of them refuses all
		takes := c.spread()
		takes[refusing].N = 8
		windows, granted := c.takeAll(takes...)
		c.expect(!granted, "the takes are granted, although take %d is over its limit", refusing)
		for i, w := range windows {
			c := c.as(takes[i])
			c.expect(w.Refused == (i == refusing), "take %d is refused: take %d returns %+v", refusing, i, w)
			if w.Refused {
				c.retries(w, takes[i].N)
			}
			c.state(w, 3)
			c.has(3)
		}
	}
	for refusing := range takes { // and opens no window
		takes := c.spread()
		for i := range takes {
			takes[i].Key += "new"
		}
		takes[refusing].N = 11
		windows, granted := c.takeAll(takes...)
		c.expect(!granted, "the takes are granted")
		for i, w := range windows {
			c := c.as(takes[i])
			c.none(w)
			c.ended()
			if w.Refused != (i == refusing) || w.Refused && w.RetryAfter != window.Never {
				c.Errorf("take %d of 11 of 10: take %d returns %+v", refusing, i, w)
			}
		}
	}
	for i, t := range takes {
		if c := c.as(t); c.giveBack(1, windows[i].ID, true) {
			c.has(2)
		}
	}
}

func testRepeated(c calls) {
	c = c.in(time.Minute)
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
		return c.on(key).upTo(most).withBurst(burst).takeOf(n)
	}
	for _, w := range taken(true, of("k", 10, 0, 3), of("k", 7, 0, 4)) {
		c.opened(w, 7)
	}
	c.upTo(7).has(7)
	taken(false, of("k", 7, 0, 1), of("k", 10, 0, 1))
	c.upTo(7).has(7)
	taken(true, of("second", 10, 0, 7))
	taken(false, of("second", 10, 0, 3), of("second", 10, 0, 1))
	c.on("second").has(7)
	for _, takes := range [][]window.Take{{of("new", 6, 0, 3), of("new", 10, 0, 4)}, {of("new", 10, 0, 4), of("new", 6, 0, 3)}} {
		for _, w := range taken(false, takes...) {
			c.none(w)
		}
		c.on("new").ended()
	}
	windows := taken(true, of("b", 10, 0, 3), of("b", 10, 0, 4), of("b", 10, 0, 2))
	if c := c.on("b"); c.giveBack(4, windows[1].ID, true) {
		c.has(5)
	}
	if c.Algorithm == window.TokenBucket {
		taken(true, of("burst", 10, 20, 6), of("burst", 10, 12, 6))
		taken(false, of("burst", 10, 20, 1), of("burst", 10, 12, 1))
		taken(false, of("none", 10, 20, 6), of("none", 10, 0, 6))
		taken(true, of("burst", 10, 20, 4), of("burst", 10, 20, 4))
	}
	if calendar(c.Subject) == "" { // the same in other words
		month, same := c.by(window.Month, "", 1), c.by(window.Month, "UTC", 0)
		week, monday := c.by(window.Week, "UTC", 1), c.by(window.Week, "", 0)
		taken(true, month.takeOf(5), same.takeOf(5), week.takeOf(5), monday.takeOf(5))
		month.has(10)
		monday.has(10)
		windows, _ := c.takeAll(month.takeOf(1), c.on("second").takeOf(1), same.takeOf(1))
		c.expect(windows[0].Refused && !windows[1].Refused && windows[2].Refused, "takes of a full month return %+v", windows)
	}
	if c.bounded(window.Unlimited) == window.Unlimited {
		c.sumsThatWrap()
	}
}

// sumsThatWrap takes the largest numbers of one count.
func (c calls) sumsThatWrap() {
	const most = window.Unlimited
	third := c.on("fits").upTo(most).takeOf(most / 3)
	windows, granted := c.takeAll(third, third, third)
	c.expect(granted, "the takes are refused: %+v", windows)
	for _, held := range []uint64{0, 1} {
		key, other := c.on(fmt.Sprint("sum", held)).upTo(most-1), c.on(fmt.Sprint("other", held))
		if held > 0 {
			if c.Algorithm == window.TokenBucket {
				break // a bucket of that size does not count single tokens
			}
			key.granted(held)
			other.granted(held)
		}
		for _, sum := range [][]uint64{{most, most}, {1 << 62, 1 << 62}, {1, most}, {1 << 62, 1 << 62, 1}, {most, 1, most}} { // they wrap
			takes := []window.Take{other.takeOf(1)}
			for _, n := range sum {
				takes = append(takes, key.takeOf(n))
			}
			windows, granted := c.takeAll(takes...)
			for i, w := range windows {
				c.expect(!granted && w.Count == held && w.Refused == (i > 0) && (w.RetryAfter == window.Never) == (i > 0),
					"%d are held, and the takes %+v return %v, %+v", held, takes, granted, windows)
			}
			c.expect(other.get().Count == held, "a take that was refused has counted")
		}
	}
}

// testUpToLimit keeps all that is granted, by takes, and with rolling algorithms by hits.
func testUpToLimit(c calls) {
	c = c.in(time.Hour).upTo(c.bounded(1000))
	var held atomic.Uint64
	concurrently(20_000, func(i int) {
		n := uint64(1 + i%3)
		call := c.Backend.Take
		if c.Algorithm.Rolling() && i%2 == 0 {
			call = c.Backend.Hit
		}
		w, err := call(c.Context(), c.key, c.limit, n)
		c.expect(err == nil && w.Count <= c.limit.Max, "a take of %d of %d returns %+v, %v", n, c.limit.Max, w, err)
		if !w.Refused {
			held.Add(n)
		}
	})
	c.expect(held.Load() == c.limit.Max, "%d are granted of %d", held.Load(), c.limit.Max)
	c.has(c.limit.Max)
}

// testHeld takes and gives most of what is granted back at one time: with one client, with all, and of two keys of
// four. In fixed windows, it also charges. In the end, each client finds what is held.
func testHeld(c calls) {
	c = c.in(time.Hour).upTo(c.bounded(250) - 50) // there is room for 50 charges
	c.on("one").holds([]calls{c}, 1)
	if c.Second != nil {
		c.on("all").holds(c.clients(), 1)
	}
	if c.without("TakeAll") == "" && !c.Algorithm.Rolling() {
		c.on("two").holds([]calls{c}, 4)
	}
}

// holds takes of one key, or of two of several, gives back, and checks what is held.
func (c calls) holds(clients []calls, keys int) {
	var lost atomic.Int64
	held := make([]atomic.Int64, keys)
	keyOf := func(i int) string { return fmt.Sprint(c.key, i) }
	concurrently(20_000, func(i int) {
		c, n := clients[i%len(clients)], uint64(1+i%5)
		if i%10 == 0 && i < 500 && !c.Algorithm.Rolling() {
			_, err := c.Backend.Charge(c.Context(), keyOf(i%keys), c.limit, 1)
			c.expect(err == nil, "Charge: %v", err)
			held[i%keys].Add(1)
			return
		}
		of := []int{i % keys}
		if keys > 1 {
			of = append(of, (i+1+i/4%3)%keys)
		}
		takes := make([]window.Take, len(of))
		for j, key := range of {
			takes[j] = c.on(keyOf(key)).takeOf(n)
		}
		windows, granted := c.taken(takes...)
		for j, w := range windows {
			if !granted {
				break
			}
			c.expect(w.Count <= c.limit.Max, "a take up to %d of %d is granted", w.Count, c.limit.Max)
			held[of[j]].Add(int64(n))
			if i/goroutines%8 == 7 {
				continue
			}
			back, err := c.Backend.GiveBack(c.Context(), takes[j].Key, c.limit, n, w.ID)
			c.expect(err == nil, "GiveBack: %v", err)
			if back {
				held[of[j]].Add(-int64(n))
			} else {
				lost.Add(1)
			}
		}
	})
	c.expect(lost.Load() == 0 || c.Algorithm == window.TokenBucket || c.MayLose && keys > 1, "GiveBack returns false %d times", lost.Load())
	for i := range keys {
		for _, client := range clients {
			count, held := client.on(keyOf(i)).get().Count, uint64(held[i].Load())
			if c.Algorithm != window.TokenBucket || count < held || count > c.limit.Max { // a bucket may give less back
				c.expect(count == held, "the count of key %q is %d, and %d are held", keyOf(i), count, held)
			}
		}
	}
}

// taken makes takes, by any goroutine: one by Take, and several by TakeAll.
func (c calls) taken(takes ...window.Take) (windows []window.Window, granted bool) {
	windows = make([]window.Window, len(takes))
	var err error
	if t := takes[0]; len(takes) == 1 {
		windows[0], err = c.Backend.Take(c.Context(), t.Key, t.Limit, t.N)
		granted = !windows[0].Refused
	} else {
		granted, err = c.Backend.TakeAll(c.Context(), takes, windows)
	}
	c.expect(err == nil, "takes of %+v: %v", takes, err)
	return windows, granted && err == nil
}

// testEndings takes and gives back at one time while windows end, by Reset and by Set, and if they are not of a
// rolling algorithm, in time: of each window, up to the limit is held. Then all clients do so, which tell windows
// apart in different ways: together, up to the limit is held for each call that ends a window. In the end, all find
// the last one.
func testEndings(c calls) {
	c = c.upTo(c.bounded(20))
	endMeanwhile([]calls{c.in(time.Minute).on("one")}, 8, 20*time.Second)
	if c.Second != nil {
		endMeanwhile(c.in(time.Hour).clients(), 0, 0)
	}
	if jumpingCalendar(c.Subject) == "" {
		for _, c := range []calls{c.by(window.Day, "Europe/Berlin", 0), c.by(window.Month, "Australia/Lord_Howe", 31)} {
			endMeanwhile([]calls{c}, 2000, c.end().Sub(c.Clock.Now()))
			endMeanwhile(c.on("all").clients(), 0, 0)
		}
	}
}

// endMeanwhile takes and gives back. At every of some calls, unless that is 0, it advances the clock.
func endMeanwhile(clients []calls, every int, advance time.Duration) {
	type holder struct {
		window.Window
		n    uint64
		back bool
	}
	held := make([]holder, 12000)
	timed := every > 0 && !clients[0].Algorithm.Rolling()
	var ends atomic.Int64
	concurrently(len(held), func(i int) {
		c := clients[i%len(clients)]
		// Every goroutine gives back some of its own, when the window may be over.
		if before := i - 4*goroutines; i/goroutines%3 > 0 && before >= 0 && held[before].n > 0 {
			h := &held[before]
			over := timed && !c.Clock.Now().Before(h.ExpiresAt)
			var err error
			h.back, err = c.Backend.GiveBack(c.Context(), c.key, c.limit, h.n, h.ID)
			c.expect(err == nil && !(h.back && over), "GiveBack returns %v, %v after the end of the window", h.back, err)
		}
		var err error
		switch {
		case timed && i%every == every/2:
			c.Clock.Advance(advance)
		case i%500 == 125:
			ends.Add(1)
			err = c.Backend.Reset(c.Context(), c.key, c.limit)
		case i%500 == 375:
			ends.Add(1)
			_, err = c.Backend.Set(c.Context(), c.key, c.limit, 0)
		default:
			var w window.Window
			n := uint64(1 + i%7)
			w, err = c.Backend.Take(c.Context(), c.key, c.limit, n)
			c.expect(w.Refused || w.Count <= c.limit.Max, "Take returns %+v, %v", w, err)
			if err == nil && !w.Refused {
				held[i] = holder{Window: w, n: n}
			}
		}
		c.expect(err == nil, "Take, Reset or Set: %v", err)
	})
	sums, all := map[int64]uint64{}, uint64(0)
	for _, h := range held {
		if h.n > 0 && !h.back {
			sums[h.ID] += h.n
			all += h.n
		}
	}
	c := clients[0]
	if timed {
		for id, sum := range sums {
			c.expect(sum <= c.limit.Max, "%d are held of window %d, whose limit is %d", sum, id, c.limit.Max)
		}
		c.expect(len(sums) >= 2, "there was %d window", len(sums))
		last := c.hit(0)
		c.expect(last.Count == sums[last.ID], "the count is %d, and %d are held of this window", last.Count, sums[last.ID])
	} else {
		most := uint64(ends.Load()+1) * c.limit.Max
		c.expect(all <= most, "%d are held, at most %d with a limit of %d and %d calls that end the window", all, most, c.limit.Max, ends.Load())
	}
	takesUpTo(clients)
}

// takesUpTo has clients set the count to 0 and take until the limit is reached. All of them find that.
func takesUpTo(clients []calls) {
	c := clients[0]
	c.set(0)
	for n := range c.limit.Max + 10 {
		w := clients[int(n)%len(clients)].take(1)
		c.expect(w.Refused == (n >= c.limit.Max), "after Set to 0, take %d of %d returns %+v", n+1, c.limit.Max, w)
	}
	for _, c := range clients {
		c.expect(c.get().Count == c.limit.Max, "after as many takes as the limit allows, a client finds %+v", c.get())
	}
}

func testOppositeOrder(c calls) {
	c = c.in(time.Hour).upTo(1)
	for round := range 50 {
		a, b := c.on(fmt.Sprint("a", round)).takeOf(1), c.on(fmt.Sprint("b", round)).takeOf(1)
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
	c = c.in(time.Minute)
	for name, end := range map[string]func(c calls){
		"its end":         func(c calls) { c.Clock.Advance(2*c.limit.Scale + c.Precision) },
		"Reset":           func(c calls) { c.reset() },
		"Delete":          func(c calls) { c.delete(1, c.limit.Scale) },
		"Delete of all":   func(c calls) { c.delete(1) },
		"Set":             func(c calls) { c.set(4) },
		"Set to the same": func(c calls) { c.set(8) },
	} {
		c := c.on(name)
		w := c.granted(8)
		end(c)
		before := c.get()
		c.giveBack(8, w.ID, false)
		c.expect(c.get().Count == before.Count, "after %s and a give-back the window is %+v, it was %+v", name, c.get(), before)
		next := c.granted(2)
		c.giveBack(8, w.ID, false)
		c.has(next.Count)
	}
	w := c.granted(5)
	c.in(2 * c.limit.Scale).granted(5)
	c.on("other").granted(5)
	c.on("none").giveBack(5, w.ID, false)
	c.on("none").ended()
	c.named("n").giveBack(5, w.ID, false)
	c.giveBack(5, 0, false)
	c.has(5)
	c.in(2 * c.limit.Scale).has(5)
	c.on("other").has(5)
}

func testIDs(c calls) {
	c = c.in(time.Minute).upTo(100)
	seen := map[int64]string{}
	for round := range 50 {
		w := c.granted(1)
		for name, id := range map[string]int64{
			"a take": w.ID, "a refused take": c.upTo(1).refused(1).ID, "Hit": c.hit(1).ID, "Charge": c.charge(1).ID,
		} {
			c.expect(id != 0 && id == w.ID, "the ID is %d after %s, and was %d when the window opened", id, name, w.ID)
		}
		if before, ok := seen[w.ID]; ok {
			c.Fatalf("the window after %s has the ID %d of an earlier one", before, w.ID)
		}
		switch round % 4 {
		case 0:
			seen[w.ID] = "a Reset"
			c.reset()
		case 1:
			seen[w.ID] = "Set"
			id := c.set(0).ID
			c.expect(id != 0 && seen[id] == "", "Set returns the ID %d", id)
			seen[id] = "Set"
			c.reset()
		case 2:
			seen[w.ID] = "the end of another"
			c.Clock.Advance(c.limit.Scale)
		default:
			seen[w.ID] = "Delete"
			c.delete(1)
		}
	}
}
