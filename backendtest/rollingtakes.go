package backendtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/window"
)

func testRollingTake(c rolling) {
	scale := c.stretch(10 * time.Second)
	w, granted := c.take("k", scale, 10, 8)
	c.state(w, 8)
	c.decided(w, true, 0, 1)
	again, grantedAgain := c.take("k", scale, 10, 3)
	c.state(again, 8)
	if !granted || grantedAgain || !again.Refused || again.RetryAfter <= 0 || w.ID == 0 {
		c.Errorf("takes return %v, %+v and %v, %+v", granted, w, grantedAgain, again)
	}
	hit := c.hit("k", scale, 10, 3)
	if hit.RetryAfter != again.RetryAfter {
		c.Errorf("a hit returns RetryAfter %v, a take %v", hit.RetryAfter, again.RetryAfter)
	}
	w, granted = c.take("k", scale, 10, 0)
	c.state(w, 8)
	if !granted {
		c.Errorf("a take of 0 is refused")
	}
	if w, granted = c.take("none", scale, 10, 11); granted {
		c.Errorf("a take of 11 of 10 is granted")
	}
	c.state(w, 0)
	c.none(c.get("none", scale))
}

func testRollingAllOrNone(c rolling) {
	limits := spread(10)
	for n := range uint64(3) {
		windows, granted := c.takeAll(limits...)
		if !granted {
			c.Errorf("the takes are refused: %+v", windows)
		}
		for _, w := range windows {
			c.state(w, n+1)
		}
	}
	for i := range limits { // each of them refuses all
		limits := spread(10)
		limits[i].N = 8
		windows, granted := c.takeAll(limits...)
		if granted {
			c.Errorf("the takes are granted, although take %d is over its limit", i)
		}
		for j, w := range windows {
			c.state(w, 3)
			c.state(c.get(limits[j].Key, limits[j].Scale), 3)
			if w.Refused != (i == j) || (w.RetryAfter > 0) != (i == j) {
				c.Errorf("take %d is refused: take %d returns %+v", i, j, w)
			}
		}
	}
	for _, refusing := range []int{0, 1, 2} {
		limits := []window.Limit{{Key: "new1", N: 1}, {Key: "new2", N: 2}, {Key: "new3", N: 3}}
		for i := range limits {
			limits[i].Scale, limits[i].Limit = time.Minute, 3
		}
		limits[refusing].N = 4
		windows, granted := c.takeAll(limits...)
		if granted {
			c.Errorf("the takes are granted")
		}
		for i := range limits {
			c.state(windows[i], 0)
			c.none(c.get(limits[i].Key, time.Minute))
		}
	}
	if _, granted := c.takeAll(); !granted {
		c.Errorf("no takes are refused")
	}
}

func testRollingRepeated(c rolling) {
	const scale = time.Minute
	limit := func(key string, limit, n uint64) window.Limit {
		return window.Limit{Key: key, Scale: scale, Limit: limit, N: n}
	}
	if windows, granted := c.takeAll(limit("k", 10, 3), limit("k", 10, 4)); !granted {
		c.Errorf("takes of 3 and 4 of 10 are refused")
	} else {
		c.state(windows[0], 7)
		c.state(windows[1], 7)
	}
	if _, granted := c.takeAll(limit("k", 10, 3), limit("k", 10, 1)); granted {
		c.Errorf("takes of 3 and 1 with 3 left are granted")
	}
	c.state(c.get("k", scale), 7)
	if _, granted := c.takeAll(limit("new", 10, 4), limit("new", 6, 3)); granted {
		c.Errorf("takes of 4 and 3 of 6 are granted")
	}
	c.none(c.get("new", scale))
	windows, _ := c.takeAll(limit("b", 10, 3), limit("b", 10, 4), limit("b", 10, 2))
	if c.giveBack("b", scale, windows[1].ID, 4, true) {
		c.state(c.get("b", scale), 5)
	}
}

func testRollingGiveBack(c rolling) {
	const scale = time.Minute
	w, _ := c.take("k", scale, 12, 12)
	if c.giveBack("k", scale, w.ID, 4, true) {
		c.state(c.get("k", scale), 8)
		c.hits("k", scale, 12, 5, false, 8)
		c.hits("k", scale, 12, 4, true, 12)
	}
	w, _ = c.take("all", scale, 12, 12)
	if c.giveBack("all", scale, w.ID, 12, true) {
		c.state(c.get("all", scale), 0)
		c.hits("all", scale, 12, 12, true, 12)
	}
	a, _ := c.take("three", scale, 12, 3)
	b, _ := c.take("three", scale, 12, 3)
	d, _ := c.take("three", scale, 12, 3)
	for i, id := range []int64{a.ID, b.ID, d.ID} {
		if !c.giveBack("three", scale, id, 3, true) {
			return
		}
		c.skipRounding(scale)
		c.state(c.get("three", scale), uint64(6-3*i))
	}
	c.giveBack("none", scale, a.ID, 3, false)
	c.none(c.get("none", scale))
	w, _ = c.take("zero", scale, 12, 5)
	c.giveBack("zero", scale, 0, 5, false)
	c.state(c.get("zero", scale), 5)
}

func testRollingGiveBackToAnother(c rolling) {
	const scale, limit = time.Minute, 10
	for name, end := range map[string]func(key string){
		"its end":       func(string) { c.Clock.Advance(2*scale + c.Exact) },
		"Reset":         func(key string) { c.reset(key, scale) },
		"Delete":        func(key string) { c.delete(key, scale) },
		"Delete of all": func(key string) { c.delete(key) },
		"Set":           func(key string) { c.set(key, scale, 4) },
	} {
		w, _ := c.take(name, scale, limit, 8)
		end(name)
		before := c.get(name, scale)
		c.giveBack(name, scale, w.ID, 8, false)
		c.state(c.get(name, scale), before.Count)
		next, granted := c.take(name, scale, limit, 2)
		if !granted {
			c.Errorf("after %s a take is refused", name)
		}
		c.giveBack(name, scale, w.ID, 8, false)
		c.state(c.get(name, scale), next.Count)
	}
}

// testRollingGiveBackLater makes random takes and gives them back later. Whatever is given back
// when, no interval has more than its limit.
func testRollingGiveBackLater(c rolling) {
	random := rand.New(rand.NewPCG(11, 12))
	unit := c.stretch(time.Millisecond)
	scale := 1000 * unit
	const limit = 10
	type taken struct {
		grant
		id   int64
		left uint64 // of n
	}
	var all []taken
	for range 3000 {
		n := 1 + random.Uint64N(5)
		if w, granted := c.take("k", scale, limit, n); granted {
			all = append(all, taken{grant{c.Clock.Now(), n}, w.ID, n})
		}
		if len(all) > 0 && random.IntN(3) == 0 {
			h := &all[len(all)-1-random.IntN(min(4, len(all)))]
			back := random.Uint64N(h.left + 1)
			ok, err := c.taker.GiveBack(c.Context(), "k", scale, h.id, back)
			if err != nil || ok && back > 0 && c.Clock.Now().Sub(h.at) >= 2*scale {
				c.Fatalf("GiveBack returns %v, %v %v after the take", ok, err, c.Clock.Now().Sub(h.at))
			}
			if h.left -= back; ok {
				h.n -= back
			}
		}
		c.Clock.Advance(time.Duration(random.Int64N(120)) * unit)
	}
	grants := make([]grant, len(all))
	for i := range all {
		grants[i] = all[i].grant
	}
	c.checkIntervals(grants, scale, limit)
}

// testRollingGiveBackTwo gives back two takes. When the second one is given back, the tokens of
// both have come back by themselves, as the second one has taken the place of the first one.
func testRollingGiveBackTwo(c rolling) {
	unit := c.stretch(100 * time.Millisecond)
	const limit = 10
	for _, firstOfAll := range []bool{true, false} {
		key, scale := fmt.Sprint("k", firstOfAll), 100*unit
		now := c.Clock.Now()
		c.Clock.Advance(window.Aligned.Start(now, scale).Add(scale).Sub(now))
		first, _ := c.take(key, scale, limit, 4)
		second := first // some of one take, and the rest of it later
		if firstOfAll {
			second, _ = c.take(key, scale, limit, 4)
		} else {
			c.take(key, scale, limit, 4)
		}
		if _, err := c.taker.GiveBack(c.Context(), key, scale, first.ID, 2); err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		if _, err := c.taker.GiveBack(c.Context(), key, scale, first.ID, 2); err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		c.Clock.Advance(39 * unit)
		w, granted := c.take(key, scale, limit, 4)
		if !granted {
			c.Errorf("a take of 4 is refused: %+v", w)
		}
		c.Clock.Advance(unit)
		if _, err := c.taker.GiveBack(c.Context(), key, scale, second.ID, 4); err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		sum := 4
		for range 2 * limit {
			if _, granted := c.take(key, scale, limit, 1); granted {
				sum++
			}
		}
		if sum > limit {
			c.Errorf("%d are held that were taken in %v, with a limit of %d in %v", sum, unit, limit, scale)
		}
	}
}

func testRollingHeld(c rolling) {
	limit := c.bounded(200)
	c.holds("k", limit, takeAndGiveBack(c.clients()[:1], "k", limit, false))
}

// holds fails the test unless the count of a window is what is held.
func (c rolling) holds(key string, limit, held uint64) {
	c.Helper()
	w := c.get(key, time.Hour)
	if c.Algorithm == window.TokenBucket && w.Count > held && w.Count <= limit {
		return // a bucket may give less back than was taken
	}
	c.state(w, held)
}

// skipRounding advances the clock a little if the algorithm is a token bucket, of which a second
// give-back may give a little less back.
func (c rolling) skipRounding(scale time.Duration) {
	if c.Algorithm == window.TokenBucket {
		c.Clock.Advance(scale / 1000)
	}
}

func testRollingOppositeOrder(c rolling) { testOppositeOrder(c.takes) }

func testRollingPeek(c rolling) {
	scale := c.stretch(10 * time.Second)
	if _, ok := c.peek("k", scale, 10, 1); !ok {
		c.Fatalf("%T is no window.Peeker", c.Backend)
	}
	peek := func(limit, n uint64) window.Window {
		w, _ := c.peek("k", scale, limit, n)
		return w
	}
	for _, n := range []uint64{0, 1, 10} {
		if w := peek(10, n); w.Refused {
			c.Errorf("Peek of %d returns %+v", n, w)
		}
		c.none(c.get("k", scale))
	}
	c.take("k", scale, 10, 8)
	c.Clock.Advance(scale / 100)
	was := c.get("k", scale)
	c.state(peek(10, 2), 8)
	for _, n := range []uint64{1, 2, 3, 10, 11} {
		w := peek(10, n)
		c.state(w, 8)
		c.still("k", scale, was)
		if taken := c.hit("k", scale, 10, max(n, 3)); w.Refused != (n > 2) || w.Refused && w.RetryAfter != taken.RetryAfter {
			c.Errorf("Peek of %d returns %+v, Hit %+v", n, w, taken)
		}
	}
}
