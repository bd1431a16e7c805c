package backendtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// rollingTests are for backends with a rolling algorithm.
var rollingTests = []subtest{
	rollingTest("rolling: vectors", testRollingVectors),
	rollingTest("rolling: a hit that is refused changes nothing", testRollingRefusal),
	rollingTest("rolling: a caller who waits RetryAfter is admitted", testRollingRetry),
	rollingTest("rolling: the limit holds in every interval", testRollingIntervals),
	rollingTest("rolling: keys and scales are independent", testRollingIndependence),
	rollingTest("rolling: Set, Reset and Delete forget what was counted", testRollingForgets),
	rollingTest("rolling: numbers can be large", testRollingLargest),
	rollingTest("rolling: a limit over MaxCount is refused with window.ErrRange", testRollingRange, bounded),
	rollingTest("rolling: concurrent hits are granted up to the limit", testRollingLimit),
	rollingTest("rolling: concurrent calls of all methods leave nothing behind", testRollingAllMethods),
	rollingTest("rolling: random calls agree with a model", testRollingModel),
	rollingTest("rolling: random calls of two clients agree with a model", testRollingModelOfTwo, twoClients),
}

// rollingTakeTests are for backends with a rolling algorithm and takes.
var rollingTakeTests = []subtest{
	rollingTakeTest("rolling: a take is a hit", testRollingTake),
	rollingTakeTest("rolling: takes of several windows are granted all or none", testRollingAllOrNone),
	rollingTakeTest("rolling: several takes of one window count as their sum", testRollingRepeated),
	rollingTakeTest("rolling: what is given back can be taken again, once", testRollingGiveBack),
	rollingTakeTest("rolling: nothing is given back after Set and Reset", testRollingGiveBackToAnother),
	rollingTakeTest("rolling: what has come back by itself is not given back", testRollingGiveBackLater),
	rollingTakeTest("rolling: a second give-back gives nothing back that has come back by itself", testRollingGiveBackTwo),
	rollingTakeTest("rolling: concurrent takes and give-backs leave what is held", testRollingHeld),
	rollingTakeTest("rolling: of takes in opposite order one is granted", testRollingOppositeOrder),
	rollingTakeTest("rolling: Peek tells what a take would return", testRollingPeek, having("Peek")),
	rollingTakeTest("rolling: calls of two clients at once leave what is held", testRollingTwoAtOnce, twoClients),
}

// rollingTest returns a test of a rolling algorithm.
func rollingTest(name string, f func(rolling), more ...need) subtest {
	return subtest{name, func(t *testing.T, s Subject) { f(rolling{newTakes(t, s)}) }, append([]need{isRolling}, more...)}
}

// rollingTakeTest returns a test of takes of a rolling algorithm.
func rollingTakeTest(name string, f func(rolling), more ...need) subtest {
	return rollingTest(name, f, append([]need{having("Take")}, more...)...)
}

// rolling makes calls of a backend with a rolling algorithm.
type rolling struct {
	takes
}

// state fails the test unless w has the given count, and is active if that is more than 0.
func (c rolling) state(w window.Window, count uint64) {
	c.Helper()
	if w.Count != count {
		c.Errorf("Count is %d, want %d", w.Count, count)
	}
	if active := w.Left > 0; active != (count > 0) || w.ExpiresAt.IsZero() == active || !w.StartedAt.IsZero() || !w.UpdatedAt.IsZero() {
		c.Errorf("the window is %+v", w)
	}
}

// hits hits, and fails the test unless the hit is granted or not, with the given count.
func (c rolling) hits(key string, scale time.Duration, limit, n uint64, granted bool, count uint64) window.Window {
	c.Helper()
	w := c.hit(key, scale, limit, n)
	if w.Refused == granted || (w.RetryAfter > 0) == granted {
		c.Errorf("Hit(%q, %v, %d, %d) returns %+v, want granted %v", key, scale, limit, n, w, granted)
	}
	c.state(w, count)
	return w
}

// still fails the test if an active window differs from what it was.
func (c rolling) still(key string, scale time.Duration, was window.Window) {
	c.Helper()
	if w := c.get(key, scale); w.Count != was.Count || !w.ExpiresAt.Equal(was.ExpiresAt) {
		c.Errorf("the window is %+v, and was %+v", w, was)
	}
}

func testRollingRefusal(c rolling) {
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
func testRollingRetry(c rolling) {
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
func testRollingIntervals(c rolling) {
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
				now := c.Clock.Now()
				c.Clock.Advance(window.Aligned.Start(now, scale).Add(scale).Sub(now) - time.Duration(random.IntN(2))*unit)
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
func (c rolling) checkIntervals(grants []grant, scale time.Duration, limit uint64) {
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
			case c.Algorithm == window.Sliding:
				most = 2*limit - 1
			}
			if sum > most {
				c.Fatalf("%d are granted in %v from %v on, with a limit of %d in %v", sum, length, grants[i].at, limit, scale)
			}
		}
	}
}

func testRollingIndependence(c rolling) {
	long := strings.Repeat("k", 5000)
	keys := []string{"", "a", "A", "a:1", "a1", "0a", "\xff", "\xfe", "{a}", strings.Repeat("k", 256), long, long + "1", "1" + long}
	var scales []time.Duration
	for _, s := range []time.Duration{1, 2, 10, 12, 60} { // of 1 and 10, and 2 and 12, simple concatenation gives equal names
		scales = append(scales, c.stretch(s*time.Second))
	}
	for _, check := range []bool{false, true} {
		n := uint64(0)
		for _, key := range keys {
			for _, scale := range scales {
				if n++; check {
					c.state(c.get(key, scale), n)
				} else {
					c.hits(key, scale, 100, n, true, n)
				}
			}
		}
	}
}

func testRollingForgets(c rolling) {
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
	c.reset("k", scale)
	c.state(c.get("k", other), 4)
	c.state(c.get("other", scale), 5)
	c.hits("k", scale, 10, 10, true, 10)
	for _, test := range []struct {
		key    string
		scales []time.Duration
		want   int
	}{{"k", []time.Duration{scale}, 1}, {"k", []time.Duration{scale}, 0}, {"k", nil, 1}, {"k", nil, 0}, {"unknown", nil, 0}} {
		if got := c.delete(test.key, test.scales...); got != test.want {
			c.Errorf("Delete(%q, %v) returns %d, want %d", test.key, test.scales, got, test.want)
		}
	}
	c.none(c.get("k", other))
	c.state(c.get("other", scale), 5)
	c.state(c.inc("k", scale, 2), 2)
	c.state(c.inc("k", scale, 3), 5)
	c.state(c.inc("k", scale, 0), 5)
	c.hits("k", scale, 10, 6, false, 5)
	c.hits("k", scale, 10, 5, true, 10)
	c.none(c.inc("none", scale, 0))
	c.none(c.get("none", scale))
	c.Clock.Advance(4 * other)
	if n := c.delete("k"); n != 0 {
		c.Errorf("Delete returns %d after the end of all windows", n)
	}
}

// testRollingLargest hits with the largest limits. What Inc counts may have a bound.
func testRollingLargest(c rolling) {
	largest := c.MaxCount
	if largest == 0 {
		largest = math.MaxUint64
	}
	scale := c.stretch(time.Minute)
	half := largest / 2
	if w := c.hit("k", scale, largest, half); w.Refused || w.Count < half || w.Count > half+half/1000 {
		c.Errorf("a hit of half of the largest limit returns %+v", w)
	}
	if w := c.hit("k", scale, largest, half); w.Refused {
		c.Errorf("a second hit of half of the largest limit returns %+v", w)
	}
	for _, n := range []uint64{half, largest} {
		if w := c.hit("k", scale, largest, n); !w.Refused {
			c.Errorf("then, a hit of %d of %d returns %+v", n, largest, w)
		}
	}
	if w := c.hit("none", scale, 5, largest); !w.Refused || w.Count != 0 {
		c.Errorf("a hit of the largest number of 5 returns %+v", w)
	}
	for range 2 {
		if !c.RefusesInc {
			c.inc("k", scale, largest)
		} else if _, err := c.Backend.Inc(c.Context(), "k", scale, largest); !errors.Is(err, window.ErrRange) {
			c.Errorf("Inc of %d beyond the largest count returns error %v, want window.ErrRange", largest, err)
		}
		if w := c.get("k", scale); w.Count < half || w.Left <= 0 {
			c.Errorf("after Inc of the largest number the window is %+v", w)
		}
	}
	c.set("k", scale, largest)
	if w := c.hit("k", scale, 5, 1); !w.Refused {
		c.Errorf("a hit after Set of the largest number returns %+v", w)
	}
}

func testRollingRange(c rolling) {
	over := c.MaxCount + 1
	_, err := c.Backend.Hit(c.Context(), "k", time.Minute, over, 1)
	c.wantRange("Hit with a limit", over, err)
	if c.taker != nil {
		_, _, err = c.taker.Take(c.Context(), "k", time.Minute, over, 1)
		c.wantRange("Take with a limit", over, err)
		limits := []window.Limit{{Key: "a", Scale: time.Minute, Limit: 1, N: 1}, {Key: "k", Scale: time.Minute, Limit: over, N: 1}}
		_, err = c.taker.TakeAll(c.Context(), limits, make([]window.Window, 2))
		c.wantRange("TakeAll with a limit", over, err)
	}
	if checker, ok := c.Backend.(window.Checker); ok {
		c.wantRange("Check with a limit", over, checker.Check(time.Minute, over))
		if err := checker.Check(time.Minute, c.MaxCount); err != nil {
			c.Errorf("Check of %d: %v", c.MaxCount, err)
		}
	}
	c.none(c.get("a", time.Minute))
	c.none(c.get("k", time.Minute))
}

func testRollingLimit(c rolling) {
	limit := c.bounded(1000)
	var granted atomic.Uint64
	concurrently(20_000, func(i int) {
		n := uint64(1 + i%3)
		var w window.Window
		var err error
		if c.taker != nil && i%2 == 0 {
			var ok bool
			if w, ok, err = c.taker.Take(c.Context(), "k", time.Hour, limit, n); ok == w.Refused {
				c.Errorf("Take returns %v and %+v", ok, w)
			}
		} else {
			w, err = c.Backend.Hit(c.Context(), "k", time.Hour, limit, n)
		}
		if err != nil || w.Count > limit {
			c.Errorf("a hit returns %+v, %v", w, err)
		}
		if !w.Refused {
			granted.Add(n)
		}
	})
	if granted.Load() != limit {
		c.Errorf("%d are granted, the limit is %d", granted.Load(), limit)
	}
	c.state(c.get("k", time.Hour), limit)
}

func testRollingAllMethods(c rolling) {
	scales := []time.Duration{c.stretch(time.Second), c.stretch(time.Minute)}
	callAll(c.T, c.Subject, scales, 2)
	c.Clock.Advance(3 * scales[1])
	for i := range 4 {
		for _, scale := range scales {
			c.none(c.get(sharedKey(i), scale))
			c.hits(sharedKey(i), scale, 5, 1, true, 1)
			c.hits(sharedKey(i), scale, 5, 1, true, 2)
		}
	}
}
