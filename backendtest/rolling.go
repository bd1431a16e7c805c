package backendtest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/window"
)

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
			if early := w.RetryAfter - c.Precision - 1; early > 0 && random.IntN(2) == 0 {
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
	c.expect(refused >= 100, "only %d hits were refused", refused)
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
		c.expect(sum <= limit, "%d are held that were taken in %v, with a limit of %d in %v", sum, unit, limit, scale)
	}
}
