package backendtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// testMethods compares the methods of a backend with those that its Subject leaves out.
func testMethods(c calls) {
	known := map[string]bool{}
	for _, c := range c.clients() {
		valid := c.limit(time.Minute, 5)
		for _, m := range append(c.methods(), method{"Check", func(context.Context, string, window.Limit) error {
			_, err := c.Backend.Check(valid)
			return err
		}}, method{"Exchange", func(ctx context.Context, key string, _ window.Limit) error {
			return c.Backend.Exchange(ctx, []window.Claim{{Key: key}}, make([]window.Places, 1))
		}}) {
			known[m.name] = true
			why, without := c.Without[m.name]
			err := m.call(c.Context(), "k", valid)
			switch unsupported := errors.Is(err, window.ErrUnsupported); {
			case unsupported && !without:
				c.Errorf("%s of %T returns error %v, and Subject.Without does not name it: is it missing, or misspelt?", m.name, c.Backend, err)
			case !unsupported && without:
				c.Errorf("%T has a method %s, although Subject.Without names it", c.Backend, m.name)
			case without && why == "":
				c.Errorf("Subject.Without has no reason for %s", m.name)
			case err != nil && !without:
				c.Errorf("%s of %+v returns error %v", m.name, valid, err)
			}
		}
	}
	for name := range c.Without {
		c.expect(known[name], "Subject.Without has %q, which is no method that can be left out", name)
	}
}

// testCheck compares the error of Check with those of all other methods.
func testCheck(c calls) {
	valid := c.limit(time.Minute, 5)
	traits, err := c.Backend.Check(valid)
	bound := func(n uint64) uint64 { return min(cmp.Or(n, window.Unlimited), window.Unlimited) }
	if err != nil || bound(traits.MaxCount) != bound(c.MaxCount) || traits.Precision > c.Precision || traits.Precision < 0 {
		c.Errorf("Check returns %+v, %v, and the Subject has a MaxCount of %d and Precision of %v", traits, err, c.MaxCount, c.Precision)
	}
	for sentinel, changes := range map[error][]func(l *window.Limit){
		window.ErrScale: c.wrongScales(),
		window.ErrRange: {
			func(l *window.Limit) { l.Name = strings.Repeat("n", 65) },
			func(l *window.Limit) { l.Name = "new\nline" },
			func(l *window.Limit) { l.Max = window.Unlimited + 1 },
			func(l *window.Limit) { l.Max = math.MaxUint64 },
			func(l *window.Limit) { l.Calendar = window.Month },
			func(l *window.Limit) { l.Calendar = math.MaxUint8 },
			func(l *window.Limit) { l.StartDay = 1 },
			func(l *window.Limit) { l.Zone = "Europe/Berlin" },
			func(l *window.Limit) { l.Algorithm = window.CalendarWindow },
			func(l *window.Limit) { l.Algorithm, l.Burst = window.FixedWindow, 1 },
			func(l *window.Limit) { l.Algorithm, l.Burst = window.TokenBucket, window.Unlimited+1 },
			func(l *window.Limit) {
				l.Algorithm, l.Burst, l.Scale = window.TokenBucket, math.MaxInt32, 200*time.Hour
			},
			func(l *window.Limit) { l.Max = bound(c.MaxCount) + 1 },
			func(l *window.Limit) {
				if l.Max = bound(c.MaxCount) + 1; c.Algorithm == window.TokenBucket {
					l.Max, l.Burst = 5, l.Max
				}
			},
		},
		window.ErrUnsupported: {
			func(l *window.Limit) { l.Algorithm = 0 },
			func(l *window.Limit) { l.Algorithm = window.CalendarWindow + 1 },
			func(l *window.Limit) { l.Algorithm = math.MaxUint8 },
		},
	} {
		for _, change := range changes {
			l := valid
			change(&l)
			c.sameErrors(l, sentinel)
		}
	}
	for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
		l := valid
		if l.Algorithm = a; !c.accepts(l) {
			c.sameErrors(l, window.ErrUnsupported)
		}
	}
	if _, without := c.Without["Peek"]; !without {
		c.none(c.get("k", time.Minute))
	}
}

// wrongScales returns changes that make a scale too short or too long.
func (c calls) wrongScales() (all []func(*window.Limit)) {
	for _, scale := range []time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 60, time.Microsecond, window.MinScale - 1, window.MaxScale + 1, math.MaxInt64} {
		all = append(all, func(l *window.Limit) { l.Scale = scale })
	}
	return all
}

// accepts reports whether the backend has the algorithm of a limit.
func (c calls) accepts(l window.Limit) bool {
	_, err := c.Backend.Check(l)
	return !errors.Is(err, window.ErrUnsupported)
}

// sameErrors fails the test unless Check and all other methods return the same error for a limit, which
// matches sentinel. An algorithm that the backend does not have is an error of its own.
func (c calls) sameErrors(l window.Limit, sentinel error) {
	c.Helper()
	_, want := c.Backend.Check(l)
	if !errors.Is(want, sentinel) && !errors.Is(want, window.ErrUnsupported) {
		c.Errorf("Check(%+v) returns error %v, want %v", l, want, sentinel)
		return
	}
	var wantRange *window.RangeError
	errors.As(want, &wantRange)
	for _, m := range c.present() {
		if strings.HasPrefix(m.name, "Delete") && (m.name != "Delete" || limits.CheckScale(l.Scale) == nil || limits.HasCalendar(&l)) {
			continue // it has no limit
		}
		got := m.call(c.Context(), "k", l)
		for _, sentinel := range []error{window.ErrScale, window.ErrRange, window.ErrUnsupported} {
			c.expect(errors.Is(got, sentinel) == errors.Is(want, sentinel), "%s with %+v returns error %v, and Check %v", m.name, l, got, want)
		}
		var gotRange *window.RangeError
		if errors.As(got, &gotRange) != (wantRange != nil) || wantRange != nil && *gotRange != *wantRange {
			c.Errorf("%s with %+v returns error %v, and Check %v", m.name, l, got, want)
		}
	}
}

// testAnotherMax takes of one key under different limits at one time. What is counted stays: of a token bucket, the
// tokens that it lacks.
func testAnotherMax(c calls) {
	const scale = time.Hour
	c.granted("k", scale, 5, 4)
	c.state(c.peek("k", scale, 8, 1), 4)
	c.granted("k", scale, 8, 3)
	w := c.refused("k", scale, 5, 1)
	c.expect(w.Count == 7, "the count is %d with a lower Max, want 7", w.Count)
	c.refused("k", scale, 8, 2)
	c.state(c.granted("k", scale, 8, 1), 8)
	c.state(c.granted("k", scale, 100, 92), 100)
	c.refused("k", scale, 100, 1)
	if c.Algorithm != window.TokenBucket {
		return
	}
	c.burst = 110 // holds more, and gains as much
	c.state(c.granted("k", scale, 100, 10), 110)
	c.refused("k", scale, 100, 1)
}

func testContext(c calls) {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	c.charge("k", time.Minute, 2)
	for _, key := range []string{"k", "none"} {
		for _, m := range c.present() {
			if err := m.call(ctx, key, c.limit(time.Minute, 5)); !errors.Is(err, context.Canceled) {
				c.Errorf("%s returns error %v, want context.Canceled", m.name, err)
			}
			c.want(c.get("k", time.Minute), 2, c.end(time.Minute))
			c.none(c.get("none", time.Minute))
			if c.Failed() {
				c.Fatalf("after %s of key %q", m.name, key)
			}
		}
	}
}

// testClosed is for backends that can be closed.
func testClosed(c calls) {
	closer, ok := c.Backend.(io.Closer)
	switch {
	case c.Close != nil:
		c.Close()
	case ok:
		if err := closer.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	default:
		return
	}
	for _, m := range c.present() {
		if err := m.call(c.Context(), "k", c.limit(time.Minute, 5)); !errors.Is(err, window.ErrClosed) {
			c.Errorf("%s after Close returns error %v, want window.ErrClosed", m.name, err)
		}
	}
}

// testIndependence counts in windows that differ in their key, name, scale or algorithm.
func testIndependence(c calls) {
	long := strings.Repeat("k", 5000)
	keys := []string{
		"", "a", "A", " a", "a ", "a:1", "1:a", "a\x00", "é", "e\u0301", "\xff", "\xfe", "{a}", "*",
		"a1", "0a", "1a", // with scales of 1 s, 10 s and 11 s, simple concatenation gives equal names
		strings.Repeat("k", 255), strings.Repeat("k", 256), long, long + "1", "1" + long,
	}
	var scales []time.Duration
	for _, s := range []time.Duration{1, 2, 10, 11, 60} {
		scale := c.stretch(s * time.Second)
		if _, err := c.Backend.Check(c.limit(scale, 100)); err == nil || s != 11 { // some stores have no such scale
			scales = append(scales, scale)
		}
	}
	for _, check := range []bool{false, true} {
		n := 0
		each := func(c calls, key string, scale time.Duration) {
			n++
			count := uint64(1 + n%97)
			w := c.get(key, scale)
			if !check {
				c.none(w)
				w = c.charge(key, scale, count)
			}
			c.want(w, count, c.end(scale))
			if c.Failed() {
				c.Fatalf("%v, name %q, key %.40q, scale %v", c.Algorithm, c.name, key, scale)
			}
		}
		for _, key := range keys {
			for _, scale := range scales {
				each(c.upTo(100), key, scale)
			}
		}
		for _, a := range c.algorithms() {
			for _, name := range []string{"", "1", "a", "1:", ":1", "10", strings.Repeat("~", 64)} {
				if a == c.Algorithm && name == "" {
					continue
				}
				for _, key := range append(keys[:7:7], "a1", "1a", long) {
					each(c.of(a).named(name).upTo(100), key, scales[0])
					each(c.of(a).named(name).upTo(100), key, scales[2])
				}
			}
		}
	}
}

// testDelete fills windows of some scales, of all algorithms, with and without a name.
func testDelete(c calls) {
	short, scale, long := c.stretch(30*time.Second), c.stretch(time.Minute), c.stretch(2*time.Minute)
	scales := []time.Duration{short, scale, long}
	var kinds []calls
	for _, a := range c.algorithms() {
		kinds = append(kinds, c.of(a), c.of(a).named("n"))
	}
	each := func(keys []string, scales []time.Duration, f func(c calls, key string, scale time.Duration)) {
		for _, c := range kinds {
			for _, key := range keys {
				for _, scale := range scales {
					f(c, key, scale)
				}
			}
		}
	}
	fill := func(c calls, key string, scale time.Duration) { c.charge(key, scale, 1) }
	none := func(c calls, key string, scale time.Duration) { c.none(c.get(key, scale)) }
	counted := func(c calls, key string, scale time.Duration) {
		if w := c.get(key, scale); w.Count != 1 {
			c.Errorf("the window of %v, name %q, key %q and scale %v is %+v", c.Algorithm, c.name, key, scale, w)
		}
	}
	deleted := func(want int, key string, scales ...time.Duration) {
		c.Helper()
		if got := c.delete(key, scales...); got != want {
			c.Errorf("Delete(%q, %v) returns %d, want %d", key, scales, got, want)
		}
	}
	all := []string{"k", "other", "k1"}
	end := c.end(scale)
	each(all, scales, fill)
	c.reset("k", scale)
	c.none(c.get("k", scale))
	c.reset("k", scale)
	c.reset("unknown", scale)
	each([]string{"other", "k1"}, scales, counted)
	each([]string{"k"}, []time.Duration{short, long}, counted)
	c.named("n").want(c.named("n").get("k", scale), 1, end)
	c.want(c.charge("k", scale, 1), 1, c.end(scale))
	each([]string{"k"}, scales, counted)

	deleted(2*len(kinds), "k", short, long, short)
	each([]string{"k"}, []time.Duration{short, long}, none)
	each([]string{"k"}, []time.Duration{scale}, counted)
	deleted(0, "k", short)
	c.reset("k", scale)
	deleted(len(kinds)-1, "k")
	deleted(0, "k")
	deleted(0, "unknown")
	each([]string{"k"}, scales, fill)
	deleted(3*len(kinds), "k")
	each([]string{"k"}, scales, none)
	each([]string{"other", "k1"}, scales, counted)
	c.Clock.Advance(2*long + c.Precision)
	deleted(0, "other")
}

// testCharge charges more than the limit, and than the largest count.
func testCharge(c calls) {
	scale := c.stretch(time.Minute)
	none := c.upTo(0) // it allows nothing, but is no mistake
	if w, err := c.Backend.Charge(c.Context(), "none", none.limit(scale, 0), 1); err != nil {
		c.Errorf("a charge with a Max of 0 returns %+v, %v", w, err)
	}
	none.get("none", scale)
	none.set("none", scale, 1)
	none.refused("none", scale, 0, 1)
	c.want(c.charge("k", scale, 3), 3, c.end(scale))
	c.want(c.hit("k", scale, 10, 7), 10, c.end(scale))
	c.want(c.charge("k", scale, 4), 14, c.end(scale))
	c.want(c.get("k", scale), 14, c.end(scale))
	c.refused("k", scale, 10, 1)
	c.want(c.get("k", scale), 14, c.end(scale))

	largest := cmp.Or(c.MaxCount, window.Unlimited)
	if c.Algorithm == window.TokenBucket { // it owes at most Burst more
		for _, n := range []uint64{6, 1, 100, largest} {
			c.want(c.charge("k", scale, n), 20, c.end(scale))
		}
		c.burst = 4
		c.want(c.charge("burst", scale, 5), 5, c.end(scale))
		c.want(c.charge("burst", scale, 5), 8, c.end(scale))
		c.refused("burst", scale, 10, 1)
		c.want(c.charge("burst", scale, largest), 8, c.end(scale))
		return
	}
	if c.Algorithm.Rolling() {
		return // see testRollingLargest
	}
	c.want(c.set("k", scale, largest-1), largest-1, c.end(scale))
	c.want(c.charge("k", scale, 1), largest, c.end(scale))
	for _, n := range []uint64{1, largest - 1, largest} {
		if w := c.charge("k", scale, n); w.Count < largest || c.MaxCount != 0 && w.Count > largest {
			c.Errorf("a charge of %d on the largest count returns %+v", n, w)
		}
	}
	if c.MaxCount == 0 || c.MaxCount >= window.Unlimited {
		return
	}
	l := c.limit(scale, 10)
	if w, err := c.Backend.Charge(c.Context(), "over", l, largest+1); err == nil && w.Count != largest || err != nil && !errors.Is(err, window.ErrRange) {
		c.Errorf("a charge of MaxCount+1 returns %+v, %v", w, err)
	}
	if _, err := c.Backend.Set(c.Context(), "set", l, largest+1); !errors.Is(err, window.ErrRange) {
		c.Errorf("Set of MaxCount+1 returns error %v, want window.ErrRange", err)
	}
	c.none(c.get("set", scale))
}

func testPeek(c calls) {
	scale := c.stretch(10 * time.Second)
	for _, n := range []uint64{0, 1, 10, 11} {
		w := c.peek("k", scale, 10, n)
		c.none(w)
		c.expect(w.Refused == (n > 10), "Peek of %d of 10 returns %+v", n, w)
		if w.Refused {
			c.retries(w, c.limit(scale, 10), n)
		}
		c.none(c.get("k", scale))
	}
	w := c.peek("k", scale, 0, 1)
	if c.none(w); !w.Refused {
		c.Errorf("Peek of 1 of 0 returns %+v", w)
	}
	c.granted("k", scale, 10, 8)
	c.Clock.Advance(scale / 100)
	was := c.get("k", scale)
	for _, n := range []uint64{0, 1, 2, 3, 10, 11} {
		w := c.peek("k", scale, 10, n)
		c.want(w, 8, was.ExpiresAt)
		c.still("k", scale, was)
		taken := c.refused("k", scale, 10, max(n, 3))
		if w.Refused != (n > 2) || w.Refused && cmp.Or(w.RetryAfter, w.Left) != cmp.Or(taken.RetryAfter, taken.Left) {
			c.Errorf("Peek of %d returns %+v, Take %+v", n, w, taken)
		}
	}
}

// still fails the test if an active window differs from what it was.
func (c calls) still(key string, scale time.Duration, was window.Window) {
	c.Helper()
	if w := c.get(key, scale); w.Count != was.Count || !w.ExpiresAt.Equal(was.ExpiresAt) {
		c.Errorf("the window is %+v, and was %+v", w, was)
	}
}

// sharedKey returns one of the four keys of testAllMethods.
func sharedKey(i int) string { return fmt.Sprint("k", i%4) }

// testAllMethods makes concurrent calls of all methods, most results of which depend on the order. Then
// it checks that new windows are not affected.
func testAllMethods(c calls) {
	c, scales := c.upTo(5), []time.Duration{c.stretch(time.Second), c.stretch(time.Minute)}
	concurrently(2000, func(i int) {
		b, ctx, key, l := c.Backend, c.Context(), sharedKey(i), c.limit(scales[i%2], 5)
		var w window.Window
		var err error
		switch i / 8 % 9 {
		case 0:
			w, err = b.Set(ctx, key, l, uint64(i%5))
		case 1:
			err = b.Reset(ctx, key, l)
		case 2:
			_, err = b.Delete(ctx, key, scales...)
		case 3:
			_, err = b.Delete(ctx, key)
		case 4:
			w, err = b.Peek(ctx, key, l, 1)
		case 5:
			w, err = b.Charge(ctx, key, l, 1)
		default:
			w, err = b.Hit(ctx, key, l, 1)
		}
		lasts := l.Scale
		if c.Algorithm.Rolling() {
			lasts *= 2
		}
		c.expect(err == nil && w.Count <= 2004 && w.Left <= lasts+c.Precision && w.Left >= 0, "call %d returns %+v, %v", i, w, err)
	})
	c.Clock.Advance(3 * scales[1])
	for i := range 4 {
		for _, scale := range scales {
			c.none(c.get(sharedKey(i), scale))
			c.want(c.hit(sharedKey(i), scale, 5, 1), 1, c.end(scale))
			c.want(c.charge(sharedKey(i), scale, 1), 2, c.end(scale))
		}
	}
}
