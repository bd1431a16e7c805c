package backendtest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/window"
)

// hits hits, and fails the test unless the hit is granted or not, with the given count.
func (c calls) hits(key string, scale time.Duration, limit, n uint64, granted bool, count uint64) {
	c.Helper()
	w := c.hit(key, scale, limit, n)
	if w.Refused == granted || (w.RetryAfter > 0) == granted {
		c.Errorf("Hit(%q, %v, %d, %d) returns %+v, want granted %v", key, scale, limit, n, w, granted)
	}
	if w.Refused {
		c.retries(w, c.limit(scale, limit), n)
	}
	c.state(w, count)
}

func testRollingRefusal(c calls) {
	scale := c.stretch(10 * time.Second)
	c.hits("k", scale, 10, 8, true, 8)
	c.Clock.Advance(scale / 1000)
	was := c.get("k", scale)
	for range 3 {
		for _, limitAndN := range [][2]uint64{{10, 3}, {10, 11}, {8, 1}, {5, 5}} {
			w := c.hit("k", scale, limitAndN[0], limitAndN[1])
			if c.Algorithm == window.TokenBucket && limitAndN[0] != 10 {
				continue // with another limit, the same part is full
			}
			if !w.Refused || w.RetryAfter <= 0 || w.Count != 8 {
				c.Errorf("a hit of %d of %d returns %+v", limitAndN[1], limitAndN[0], w)
			}
			c.still("k", scale, was)
		}
		if c.Failed() || c.Algorithm == window.TokenBucket {
			break
		}
	}
	c.hits("none", scale, 10, 11, false, 0)
	c.hits("none", scale, 0, 1, false, 0)
	c.none(c.get("none", scale))
	if w := c.hit("none", scale, 10, 0); w.Refused {
		c.Errorf("a hit of 0 is refused: %+v", w)
	}
	c.none(c.get("none", scale))
	c.hits("full", scale, 10, 10, true, 10)
	was = c.get("full", scale)
	for range 100 {
		c.hits("full", scale, 10, 1, false, 10)
	}
	c.still("full", scale, was)
	c.Clock.Advance(2*scale + c.Exact)
	c.hits("full", scale, 10, 10, true, 10)
}

// testRollingRetry makes random hits. If one is refused, the same hit is made again a little before
// RetryAfter, and then: nobody else hits meanwhile.
func testRollingRetry(c calls) {
	random := rand.New(rand.NewPCG(7, 8))
	unit := c.stretch(time.Millisecond)
	scale, refused := 1000*unit, 0
	for step := range 2000 {
		limit := 1 + random.Uint64N(12)
		n := 1 + random.Uint64N(limit)
		key := fmt.Sprint("k", random.IntN(3), limit)
		w := c.hit(key, scale, limit, n)
		if w.Refused {
			refused++
			if early := w.RetryAfter - c.Exact - 1; early > 0 && random.IntN(2) == 0 {
				c.Clock.Advance(early)
				if w := c.hit(key, scale, limit, n); !w.Refused {
					c.Fatalf("step %d: a hit is granted %v before RetryAfter: %+v", step, w.RetryAfter-early, w)
				}
				w.RetryAfter -= early
			}
			c.Clock.Advance(w.RetryAfter)
			if w := c.hit(key, scale, limit, n); w.Refused || w.Count > limit {
				c.Fatalf("step %d: a hit of %d of %d is refused after RetryAfter: %+v", step, n, limit, w)
			}
		}
		c.Clock.Advance(time.Duration(random.Int64N(150)) * unit)
	}
	if refused < 100 {
		c.Errorf("only %d hits were refused", refused)
	}
}

// grant is a hit that was granted.
type grant struct {
	at time.Time
	n  uint64
}

// testRollingIntervals hits at random and adverse times, and checks every interval between two
// hits.
func testRollingIntervals(c calls) {
	random := rand.New(rand.NewPCG(9, 10))
	unit := c.stretch(time.Millisecond)
	for _, limit := range []uint64{1, 3, 10, 100} {
		scale := 1000 * unit
		key := fmt.Sprint("k", limit)
		var grants []grant
		for range 1500 {
			n := 1 + random.Uint64N(max(1, limit/4))
			if w := c.hit(key, scale, limit, n); !w.Refused {
				grants = append(grants, grant{c.Clock.Now(), n})
			} else if w.Count > limit {
				c.Fatalf("the count is %d of %d", w.Count, limit)
			}
			switch random.IntN(6) {
			case 0: // up to a multiple of the scale, or just before it
				c.Clock.Advance(c.nextAligned(scale) - time.Duration(random.IntN(2))*unit)
			case 1:
				c.Clock.Advance(time.Duration(random.Int64N(300)) * unit)
			case 2:
				c.Clock.Advance(scale - time.Duration(random.Int64N(3))*unit)
			default:
				c.Clock.Advance(time.Duration(random.Int64N(4)) * unit)
			}
		}
		c.checkIntervals(grants, scale, limit)
	}
}

// checkIntervals fails the test if more was granted in an interval than the algorithm allows.
func (c calls) checkIntervals(grants []grant, scale time.Duration, limit uint64) {
	c.Helper()
	for i := range grants {
		sum := uint64(0)
		for _, g := range grants[i:] {
			length := g.at.Sub(grants[i].at)
			sum += g.n
			most := limit
			switch {
			case c.Algorithm == window.TokenBucket:
				most += uint64(math.Floor(float64(length) / float64(scale) * float64(limit) * (1 + 1e-12)))
			case length >= scale:
				most = math.MaxUint64
			case c.Algorithm == window.SlidingWindow:
				most = 2*limit - 1
			}
			if sum > most {
				c.Fatalf("%d are granted in %v from %v on, with a limit of %d in %v", sum, length, grants[i].at, limit, scale)
			}
		}
	}
}

func testRollingForgets(c calls) {
	scale, other := c.stretch(time.Minute), c.stretch(2*time.Minute)
	c.hits("k", scale, 10, 10, true, 10)
	c.hits("k", other, 10, 4, true, 4)
	c.hits("other", scale, 10, 5, true, 5)
	c.state(c.set("k", scale, 3), 3)
	c.state(c.get("k", scale), 3)
	c.hits("k", scale, 10, 7, true, 10)
	c.hits("k", scale, 10, 1, false, 10)
	c.state(c.set("k", scale, 10), 10)
	c.hits("k", scale, 10, 1, false, 10)
	c.state(c.set("k", scale, 0), 0)
	c.none(c.get("k", scale))
	c.hits("k", scale, 10, 6, true, 6)
	c.reset("k", scale)
	c.none(c.get("k", scale))
	c.state(c.get("k", other), 4)
	c.state(c.get("other", scale), 5)
	c.state(c.charge("k", scale, 2), 2)
	c.state(c.charge("k", scale, 3), 5)
	c.hits("k", scale, 10, 6, false, 5)
	c.hits("k", scale, 10, 5, true, 10)
}

// testRollingLargest hits with the largest limits. What Charge counts may have a bound.
func testRollingLargest(c calls) {
	largest := cmp.Or(c.MaxCount, window.Unlimited-1)
	scale, half := c.stretch(time.Minute), largest/2
	c = c.upTo(largest)
	for range 2 {
		if w := c.hit("k", scale, largest, half); w.Refused || w.Count < half {
			c.Errorf("a hit of half of the largest limit returns %+v", w)
		}
	}
	for _, n := range []uint64{half, largest} {
		if w := c.hit("k", scale, largest, n); !w.Refused {
			c.Errorf("then, a hit of %d of %d returns %+v", n, largest, w)
		}
	}
	if w := c.hit("none", scale, 5, largest); !w.Refused || w.Count != 0 || w.RetryAfter != window.Never {
		c.Errorf("a hit of the largest number of 5 returns %+v", w)
	}
	for range 3 {
		c.charge("k", scale, largest)
		if w := c.get("k", scale); w.Count < half || w.Left <= 0 {
			c.Errorf("after Charge of the largest number the window is %+v", w)
		}
		if w := c.take("k", scale, largest, half); !w.Refused {
			c.Errorf("after Charge of the largest number, a take returns %+v", w)
		}
	}
	c.set("k", scale, largest)
	if w := c.hit("k", scale, 5, 1); !w.Refused {
		c.Errorf("a hit after Set of the largest number returns %+v", w)
	}
}

func testRollingGiveBack(c calls) {
	const scale = time.Minute
	c = c.upTo(12)
	w := c.granted("k", scale, 12, 12)
	if c.giveBack("k", scale, w.ID, 4, true) {
		c.state(c.get("k", scale), 8)
		c.hits("k", scale, 12, 5, false, 8)
		c.hits("k", scale, 12, 4, true, 12)
	}
	w = c.granted("all", scale, 12, 12)
	if c.giveBack("all", scale, w.ID, 12, true) {
		c.state(c.get("all", scale), 0)
		c.hits("all", scale, 12, 12, true, 12)
	}
	a := c.granted("three", scale, 12, 3)
	b := c.granted("three", scale, 12, 3)
	d := c.granted("three", scale, 12, 3)
	for i, id := range []int64{a.ID, b.ID, d.ID} {
		if !c.giveBack("three", scale, id, 3, true) {
			return
		}
		c.skipRounding(scale)
		c.state(c.get("three", scale), uint64(6-3*i))
	}
	c.giveBack("none", scale, a.ID, 3, false)
	c.none(c.get("none", scale))
	w = c.granted("zero", scale, 12, 5)
	c.giveBack("zero", scale, 0, 5, false)
	c.state(c.get("zero", scale), 5)
}

func testRollingGiveBackToAnother(c calls) {
	const scale, limit = time.Minute, 10
	for name, end := range map[string]func(key string){
		"its end":       func(string) { c.Clock.Advance(2*scale + c.Exact) },
		"Reset":         func(key string) { c.reset(key, scale) },
		"Delete":        func(key string) { c.delete(key, scale) },
		"Delete of all": func(key string) { c.delete(key) },
		"Set":           func(key string) { c.set(key, scale, 4) },
	} {
		w := c.granted(name, scale, limit, 8)
		end(name)
		before := c.get(name, scale)
		c.giveBack(name, scale, w.ID, 8, false)
		c.state(c.get(name, scale), before.Count)
		next := c.granted(name, scale, limit, 2)
		c.giveBack(name, scale, w.ID, 8, false)
		c.state(c.get(name, scale), next.Count)
	}
}

// testRollingGiveBackLater makes random takes and gives them back later. Whatever is given back
// when, no interval has more than its limit.
func testRollingGiveBackLater(c calls) {
	random := rand.New(rand.NewPCG(11, 12))
	unit := c.stretch(time.Millisecond)
	scale := 1000 * unit
	const limit = 10
	l := c.limit(scale, limit)
	type taken struct {
		grant
		id   int64
		left uint64 // of n
	}
	var all []taken
	for range 3000 {
		n := 1 + random.Uint64N(5)
		if w := c.take("k", scale, limit, n); !w.Refused {
			all = append(all, taken{grant{c.Clock.Now(), n}, w.ID, n})
		}
		if len(all) > 0 && random.IntN(3) == 0 {
			h := &all[len(all)-1-random.IntN(min(4, len(all)))]
			back := random.Uint64N(h.left + 1)
			ok, err := c.Backend.GiveBack(c.Context(), "k", l, back, h.id)
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
func testRollingGiveBackTwo(c calls) {
	unit := c.stretch(100 * time.Millisecond)
	const limit = 10
	for _, firstOfAll := range []bool{true, false} {
		key, scale := fmt.Sprint("k", firstOfAll), 100*unit
		c.Clock.Advance(c.nextAligned(scale))
		first := c.granted(key, scale, limit, 4)
		second := first // some of one take, and the rest of it later
		if firstOfAll {
			second = c.granted(key, scale, limit, 4)
		} else {
			c.take(key, scale, limit, 4)
		}
		if _, err := c.Backend.GiveBack(c.Context(), key, c.limit(scale, limit), 2, first.ID); err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		if _, err := c.Backend.GiveBack(c.Context(), key, c.limit(scale, limit), 2, first.ID); err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		c.Clock.Advance(39 * unit)
		c.granted(key, scale, limit, 4)
		c.Clock.Advance(unit)
		if _, err := c.Backend.GiveBack(c.Context(), key, c.limit(scale, limit), 4, second.ID); err != nil {
			c.Errorf("GiveBack: %v", err)
		}
		sum := 4
		for range 2 * limit {
			if !c.take(key, scale, limit, 1).Refused {
				sum++
			}
		}
		if sum > limit {
			c.Errorf("%d are held that were taken in %v, with a limit of %d in %v", sum, unit, limit, scale)
		}
	}
}

// skipRounding advances the clock a little if the algorithm is a token bucket, of which a second
// give-back may give a little less back.
func (c calls) skipRounding(scale time.Duration) {
	if c.Algorithm == window.TokenBucket {
		c.Clock.Advance(scale / 1000)
	}
}
