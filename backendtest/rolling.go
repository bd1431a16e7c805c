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
	refused := 0
	for step := range 2000 {
		limit := 1 + random.Uint64N(12)
		n := 1 + random.Uint64N(limit)
		c := c.on(fmt.Sprint("k", random.IntN(3), limit)).in(1000 * unit).upTo(limit)
		w := c.hit(n)
		if w.Refused {
			refused++
			if early := w.RetryAfter - c.Precision - 1; early > 0 && random.IntN(2) == 0 {
				c.Clock.Advance(early)
				if w := c.hit(n); !w.Refused {
					c.Fatalf("step %d: a hit is granted %v before RetryAfter: %+v", step, w.RetryAfter-early, w)
				}
				w.RetryAfter -= early
			}
			c.Clock.Advance(w.RetryAfter)
			if w := c.hit(n); w.Refused || w.Count > limit {
				c.Fatalf("step %d: a hit of %d of %d is refused after RetryAfter: %+v", step, n, limit, w)
			}
		}
		c.Clock.Advance(time.Duration(random.Int64N(150)) * unit)
	}
	c.expect(refused >= 100, "only %d hits were refused", refused)
}

// grant is a hit that was granted, and what was not given back of it.
type grant struct {
	at   time.Time
	n    uint64
	id   int64
	left uint64 // that can be given back
}

// testRollingIntervals hits, or takes and gives back, at random and adverse times. It checks every interval between
// two calls.
func testRollingIntervals(c calls) {
	unit := c.stretch(time.Millisecond)
	for _, limit := range []uint64{1, 3, 10, 100} {
		for _, gives := range []bool{false, true} {
			c.on(fmt.Sprint("k", limit, gives)).in(1000*unit).upTo(limit).grantsAtRandom(unit, gives)
		}
	}
}

func (c calls) grantsAtRandom(unit time.Duration, gives bool) {
	random := rand.New(rand.NewPCG(9, 10))
	var grants []grant
	call := c.hit
	if gives {
		call = c.take
	}
	for range 1500 {
		n := 1 + random.Uint64N(max(1, c.limit.Max/3))
		if w := call(n); !w.Refused {
			grants = append(grants, grant{c.Clock.Now(), n, w.ID, n})
		} else if w.Count > c.limit.Max {
			c.Fatalf("the count is %d of %d", w.Count, c.limit.Max)
		}
		if gives && len(grants) > 0 && random.IntN(3) == 0 {
			g := &grants[len(grants)-1-random.IntN(min(4, len(grants)))]
			c.givesBack(g, random.Uint64N(g.left+1))
		}
		switch random.IntN(6) {
		case 0: // up to a multiple of the scale, or just before it
			c.Clock.Advance(c.nextAligned() - time.Duration(random.IntN(2))*unit)
		case 1:
			c.Clock.Advance(time.Duration(random.Int64N(300)) * unit)
		case 2:
			c.Clock.Advance(c.limit.Scale - time.Duration(random.Int64N(3))*unit)
		default:
			c.Clock.Advance(time.Duration(random.Int64N(4)) * unit)
		}
	}
	c.checkIntervals(grants)
}

// givesBack gives n of a grant back. What has come back by itself is not given back.
func (c calls) givesBack(g *grant, n uint64) {
	ok, err := c.Backend.GiveBack(c.Context(), c.key, c.limit, n, g.id)
	if passed := c.Clock.Now().Sub(g.at); err != nil || ok && n > 0 && passed >= 2*c.limit.Scale {
		c.Fatalf("GiveBack returns %v, %v %v after the take", ok, err, passed)
	}
	g.left -= n
	if ok {
		g.n -= n
	}
}

// checkIntervals fails the test if more was granted in an interval than the algorithm allows.
func (c calls) checkIntervals(grants []grant) {
	c.Helper()
	scale, limit := c.limit.Scale, c.limit.Max
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
	half := largest / 2
	small := c.upTo(5)
	c = c.upTo(largest)
	for range 2 {
		w := c.hit(half)
		c.expect(!w.Refused && w.Count >= half, "a hit of half of the largest limit returns %+v", w)
	}
	for _, n := range []uint64{half, largest} {
		w := c.hit(n)
		c.expect(w.Refused, "then, a hit of %d of %d returns %+v", n, largest, w)
	}
	w := small.on("none").hit(largest)
	c.expect(w.Refused && w.Count == 0 && w.RetryAfter == window.Never, "a hit of the largest number of 5 returns %+v", w)
	for range 3 {
		c.charge(largest)
		w := c.get()
		c.expect(w.Count >= half && w.Left > 0, "after Charge of the largest number the window is %+v", w)
		c.expect(c.take(half).Refused, "after Charge of the largest number, a take is granted: %+v", w)
	}
	c.set(largest)
	w = small.hit(1)
	c.expect(w.Refused, "a hit after Set of the largest number returns %+v", w)
}
