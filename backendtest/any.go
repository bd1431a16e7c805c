package backendtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// testMethods compares the methods of a backend with those that its Subject leaves out.
func testMethods(c calls) {
	known := map[string]bool{"Check": true}
	for _, c := range c.clients() {
		_, err := c.Backend.Check(c.limit)
		c.expect(err == nil, "Check of %+v returns error %v", c.limit, err)
		for _, m := range c.methods() {
			name, _, _ := strings.Cut(m.name, " ")
			known[name] = true
			why, without := c.Without[name]
			err := m.call(c.Context(), c.key, c.limit)
			switch unsupported := errors.Is(err, window.ErrUnsupported); {
			case unsupported && !without:
				c.Errorf("%s of %T returns error %v, and Subject.Without does not name it: is it missing, or misspelt?", m.name, c.Backend, err)
			case !unsupported && without:
				c.Errorf("%T has a method %s, although Subject.Without names it", c.Backend, m.name)
			case without && why == "":
				c.Errorf("Subject.Without has no reason for %s", m.name)
			case err != nil && !without:
				c.Errorf("%s of %+v returns error %v", m.name, c.limit, err)
			}
		}
	}
	for name := range c.Without {
		c.expect(known[name], "Subject.Without has %q, which is no method, or one that need not be named", name)
	}
}

// testCheck compares the error of Check with those of all other methods, for limits that are mistakes.
func testCheck(c calls) {
	traits, err := c.Backend.Check(c.limit)
	bound := func(n uint64) uint64 { return min(cmp.Or(n, window.Unlimited), window.Unlimited) }
	if err != nil || bound(traits.MaxCount) != bound(c.MaxCount) || traits.Precision > c.Precision || traits.Precision < 0 {
		c.Errorf("Check returns %+v, %v, and the Subject has a MaxCount of %d and Precision of %v", traits, err, c.MaxCount, c.Precision)
	}
	month := c.by(window.Month, "Europe/Berlin", 17).limit
	bucket := c.limit
	bucket.Algorithm = window.TokenBucket
	mostTokens := window.Unlimited
	if c.Algorithm == window.TokenBucket {
		mostTokens = bound(c.MaxCount)
	}
	for _, mistakes := range []struct {
		sentinel error
		limit    window.Limit
		changes  []func(l *window.Limit)
	}{
		{window.ErrRange, c.limit, []func(l *window.Limit){
			func(l *window.Limit) { l.Name = strings.Repeat("n", 65) },
			func(l *window.Limit) { l.Name = "new\nline" },
			func(l *window.Limit) { l.Max = window.Unlimited + 1 },
			func(l *window.Limit) { l.Max = math.MaxUint64 },
			func(l *window.Limit) { l.Max = bound(c.MaxCount) + 1 },
			func(l *window.Limit) { l.Calendar = window.Month },
			func(l *window.Limit) { l.Calendar = math.MaxUint8 },
			func(l *window.Limit) { l.StartDay = 1 },
			func(l *window.Limit) { l.Zone = "Europe/Berlin" },
			func(l *window.Limit) { l.Algorithm = window.CalendarWindow },
			func(l *window.Limit) { l.Algorithm, l.Burst = window.FixedWindow, 1 },
		}},
		{window.ErrRange, bucket, []func(l *window.Limit){
			func(l *window.Limit) { l.Burst = window.Unlimited + 1 },
			func(l *window.Limit) { l.Burst, l.Scale = math.MaxInt32, 200*time.Hour },
			func(l *window.Limit) { l.Burst = mostTokens + 1 },
		}},
		{window.ErrRange, month, []func(l *window.Limit){
			func(l *window.Limit) { l.Calendar = window.Year + 1 },
			func(l *window.Limit) { l.Scale = time.Hour },
			func(l *window.Limit) { l.StartDay = 32 },
			func(l *window.Limit) { l.Calendar, l.StartDay = window.Week, 8 },
			func(l *window.Limit) { l.Calendar = window.Day },
			func(l *window.Limit) { l.Zone = "Local" },
			func(l *window.Limit) { l.Zone = "right/UTC" },
			func(l *window.Limit) { l.Zone = "Mars/Olympus" },
			func(l *window.Limit) { l.Algorithm = window.FixedWindow },
			func(l *window.Limit) { l.Burst = 1 },
		}},
		{window.ErrUnsupported, c.limit, []func(l *window.Limit){
			func(l *window.Limit) { l.Algorithm = 0 },
			func(l *window.Limit) { l.Algorithm = 201 },
			func(l *window.Limit) { l.Algorithm = math.MaxUint8 },
		}},
	} {
		if mistakes.limit.Calendar != 0 && calendar(c.Subject) != "" {
			continue
		}
		for _, change := range mistakes.changes {
			l := mistakes.limit
			change(&l)
			c.sameErrors(l, mistakes.sentinel)
		}
	}
	for _, scale := range []time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 60, time.Microsecond, window.MinScale - 1, window.MaxScale + 1, math.MaxInt64} {
		c.sameErrors(c.in(scale).limit, window.ErrScale)
	}
	for _, a := range limits.Algorithms {
		l := c.limit
		l.Algorithm = a
		if _, err := c.Backend.Check(l); errors.Is(err, window.ErrUnsupported) {
			c.sameErrors(l, window.ErrUnsupported)
		}
	}
	if c.without("Peek") == "" {
		c.ended()
	}
}

// sameErrors fails the test unless Check and all other methods return the same error for a limit, which
// matches sentinel. An algorithm that the backend does not have is an error of its own.
func (c calls) sameErrors(l window.Limit, sentinel error) {
	c.Helper()
	_, want := c.Backend.Check(l)
	if !errors.Is(want, sentinel) && !errors.Is(want, window.ErrUnsupported) {
		c.Errorf("Check(%+v) returns error %v, want %v", fields(l), want, sentinel)
		return
	}
	for _, m := range c.present() {
		switch m.name {
		case "Delete": // it has a scale, but no limit
			if sentinel != window.ErrScale {
				continue
			}
		case "Delete without scales", "Exchange":
			continue
		}
		got := m.call(c.Context(), c.key, l)
		same := true
		for _, sentinel := range []error{window.ErrScale, window.ErrRange, window.ErrUnsupported} {
			same = same && errors.Is(got, sentinel) == errors.Is(want, sentinel)
		}
		var gotRange, wantRange *window.RangeError
		if errors.As(want, &wantRange) {
			same = same && errors.As(got, &gotRange) && *gotRange == *wantRange
		}
		c.expect(same, "%s with %+v returns error %v, and Check %v", m.name, fields(l), got, want)
	}
}

// fields is a limit that is formatted with all its fields: the text of a Limit leaves out what may be the mistake.
type fields window.Limit

// testAnotherMax takes of one key under different limits at one time. What is counted stays: of a token bucket, the
// tokens that it lacks.
func testAnotherMax(c calls) {
	c = c.in(time.Hour)
	c.upTo(5).granted(4)
	c.upTo(8).state(c.upTo(8).peek(1), 4)
	c.upTo(8).granted(3)
	w := c.upTo(5).refused(1)
	c.expect(w.Count == 7, "the count is %d with a lower Max, want 7", w.Count)
	c.upTo(8).refused(2)
	c.state(c.upTo(8).granted(1), 8)
	c.state(c.upTo(100).granted(92), 100)
	c.upTo(100).refused(1)
	if c.Algorithm == window.TokenBucket { // it holds more, and gains as much
		c.state(c.upTo(100).withBurst(110).granted(10), 110)
		c.upTo(100).withBurst(110).refused(1)
	}
}

func testContext(c calls) {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	c.charge(2)
	for _, key := range []string{c.key, "none"} {
		for _, m := range c.present() {
			if err := m.call(ctx, key, c.limit); !errors.Is(err, context.Canceled) {
				c.Errorf("%s returns error %v, want context.Canceled", m.name, err)
			}
			c.opened(c.get(), 2)
			c.on("none").ended()
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
		err := closer.Close()
		c.expect(err == nil, "Close: %v", err)
	default:
		return
	}
	for _, m := range c.present() {
		err := m.call(c.Context(), c.key, c.limit)
		c.expect(errors.Is(err, window.ErrClosed), "%s after Close returns error %v, want window.ErrClosed", m.name, err)
	}
}

// testIndependence counts in windows that differ in one thing: key, name, scale, algorithm or calendar.
func testIndependence(c calls) {
	c = c.upTo(100)
	long := strings.Repeat("k", 5000)
	keys := []string{
		"", "a", "A", " a", "a ", "a:1", "1:a", "a\x00", "é", "e\u0301", "\xff", "\xfe", "{a}", "*",
		"a1", "0a", "1a", // with scales of 1 s, 10 s and 11 s, simple concatenation gives equal names
		strings.Repeat("k", 255), strings.Repeat("k", 256), long, long + "1", "1" + long,
	}
	var all []calls
	for _, seconds := range []time.Duration{1, 2, 10, 11, 60} {
		c := c.in(c.stretch(seconds * time.Second))
		if _, err := c.Backend.Check(c.limit); err != nil && seconds == 11 {
			continue // some stores have no such scale
		}
		for _, key := range keys {
			all = append(all, c.on(key))
		}
		if seconds != 1 && seconds != 10 {
			continue
		}
		for _, kind := range c.kinds("", "1", "a", "1:", ":1", "10", strings.Repeat("~", 64)) {
			if kind.limit == c.limit || kind.limit.Calendar != 0 && seconds == 10 {
				continue // they are there
			}
			for _, key := range append(keys[:7:7], "a1", "1a", long) {
				all = append(all, kind.on(key))
			}
		}
	}
	each := func(f func(c calls, count uint64)) {
		for i, c := range all {
			if f(c, uint64(1+i%97)); c.Failed() {
				c.Fatalf("key %.40q, %+v", c.key, c.limit)
			}
		}
	}
	each(func(c calls, count uint64) {
		c.ended()
		c.opened(c.charge(count), count)
	})
	each(func(c calls, count uint64) { c.opened(c.get(), count) })
}

// testDelete fills windows of some scales and keys, of all kinds.
func testDelete(c calls) {
	scale := c.stretch(time.Minute)
	short, long := scale/2, 2*scale
	var all []calls
	scales := 0 // windows of a key that have a scale of those
	for _, s := range []time.Duration{short, scale, long} {
		for _, kind := range c.in(s).kinds("", "n") {
			if kind.limit.Calendar != 0 && s != scale {
				continue
			}
			if s == scale && kind.limit.Calendar == 0 {
				scales++
			}
			all = append(all, kind.on("k"), kind.on("other"), kind.on("k1"))
		}
	}
	// left fails the test unless there are the windows for which open returns true, and no others.
	left := func(open func(c calls) bool) {
		c.Helper()
		for _, of := range all {
			w := of.get()
			c.expect((w.Left > 0) == open(of) && (w.Left == 0 || w.Count == 1), "key %q, %+v: got %+v, want a window: %v", of.key, of.limit, w, open(of))
		}
	}
	fill := func() {
		for _, of := range all {
			if of.get().Left == 0 {
				of.charge(1)
			}
		}
	}
	isReset := func(of calls) bool { return of.key == "k" && of.limit == c.limit }
	c = c.in(scale)
	fill()
	c.reset()
	left(func(of calls) bool { return !isReset(of) })
	c.reset()
	c.on("unknown").reset()
	c.opened(c.charge(1), 1)
	left(func(calls) bool { return true })

	deleted := func(of calls) bool { return of.key == "k" && (of.limit.Scale == short || of.limit.Scale == long) }
	c.delete(2*scales, short, long, short)
	left(func(of calls) bool { return !deleted(of) })
	c.delete(0, short)
	c.reset()
	c.delete(len(all)/3 - 2*scales - 1)
	left(func(of calls) bool { return of.key != "k" })
	c.delete(0)
	c.on("unknown").delete(0)
	fill()
	c.delete(len(all) / 3)
	left(func(of calls) bool { return of.key != "k" })
	if calendar(c.Subject) == "" { // another way to write the same limit
		c.by(window.Month, "UTC", 1).on("other").reset()
		left(func(of calls) bool {
			return of.key != "k" && (of.key != "other" || of.limit != c.by(window.Month, "", 0).limit)
		})
		c.by(window.Month, "", 0).on("other").charge(1)
	}
	c.Clock.Advance(2*long + c.Precision)
	c.on("other").delete(len(slices.DeleteFunc(all, func(of calls) bool { return of.key != "other" || of.get().Left == 0 })))
}

// testCharge charges more than the limit, and than the largest count.
func testCharge(c calls) {
	none := c.on("none").upTo(0) // it allows nothing, but is no mistake
	none.call("Charge", none.Backend.Charge, 1)
	none.get()
	none.set(1)
	none.refused(1)
	c.opened(c.charge(3), 3)
	c.opened(c.hit(7), 10)
	c.opened(c.charge(4), 14)
	c.opened(c.get(), 14)
	c.refused(1)
	c.opened(c.get(), 14)

	largest := cmp.Or(c.MaxCount, window.Unlimited)
	if c.Algorithm == window.TokenBucket { // it owes at most Burst more
		for _, n := range []uint64{6, 1, 100, largest} {
			c.opened(c.charge(n), 20)
		}
		c = c.on("burst").withBurst(4)
		c.opened(c.charge(5), 5)
		c.opened(c.charge(5), 8)
		c.refused(1)
		c.opened(c.charge(largest), 8)
		return
	}
	if c.Algorithm.Rolling() {
		return // see testRollingLargest
	}
	c.opened(c.set(largest-1), largest-1)
	c.opened(c.charge(1), largest)
	for _, n := range []uint64{1, largest - 1, largest} {
		w := c.charge(n)
		c.expect(w.Count == largest || c.MaxCount == 0 && w.Count > largest, "a charge of %d on the largest count returns %+v", n, w)
	}
	if c.bounded(window.Unlimited) == window.Unlimited {
		return
	}
	w, err := c.Backend.Charge(c.Context(), "over", c.limit, largest+1)
	c.expect(err == nil && w.Count == largest || errors.Is(err, window.ErrRange), "a charge of MaxCount+1 returns %+v, %v", w, err)
	_, err = c.Backend.Set(c.Context(), "set", c.limit, largest+1)
	c.expect(errors.Is(err, window.ErrRange), "Set of MaxCount+1 returns error %v, want window.ErrRange", err)
	c.on("set").ended()
}

func testPeek(c calls) {
	c = c.in(c.stretch(10 * time.Second))
	for _, n := range []uint64{0, 1, 10, 11} {
		w := c.peek(n)
		c.none(w)
		c.expect(w.Refused == (n > 10), "Peek of %d of 10 returns %+v", n, w)
		if w.Refused {
			c.retries(w, n)
		}
		c.ended()
	}
	w := c.upTo(0).peek(1)
	c.none(w)
	c.expect(w.Refused, "Peek of 1 of 0 returns %+v", w)
	c.granted(8)
	c.Clock.Advance(c.limit.Scale / 100)
	end := c.get().ExpiresAt
	for _, n := range []uint64{0, 1, 2, 3, 10, 11} {
		w := c.peek(n)
		c.want(w, 8, end)
		taken := c.refused(max(n, 3))
		if w.Refused != (n > 2) || w.Refused && cmp.Or(w.RetryAfter, w.Left) != cmp.Or(taken.RetryAfter, taken.Left) {
			c.Errorf("Peek of %d returns %+v, Take %+v", n, w, taken)
		}
		c.want(c.get(), 8, end)
		c.expect(c.get().ExpiresAt.Equal(end), "Peek and a take that is refused have moved the end from %v to %v", end, c.get().ExpiresAt)
	}
}

// testAllMethods makes concurrent calls of all methods, most results of which depend on the order. Then
// it checks that new windows are not affected.
func testAllMethods(c calls) {
	c = c.upTo(5)
	scales := []time.Duration{c.stretch(time.Second), c.stretch(time.Minute)}
	of := func(i int) calls { return c.on(fmt.Sprint("k", i%4)).in(scales[i%2]) }
	concurrently(2000, func(i int) {
		c := of(i)
		b, ctx := c.Backend, c.Context()
		var w window.Window
		var err error
		switch i / 8 % 9 {
		case 0:
			w, err = b.Set(ctx, c.key, c.limit, uint64(i%5))
		case 1:
			err = b.Reset(ctx, c.key, c.limit)
		case 2:
			_, err = b.Delete(ctx, c.key, scales...)
		case 3:
			_, err = b.Delete(ctx, c.key)
		case 4:
			w, err = b.Peek(ctx, c.key, c.limit, 1)
		case 5:
			w, err = b.Charge(ctx, c.key, c.limit, 1)
		default:
			w, err = b.Hit(ctx, c.key, c.limit, 1)
		}
		lasts := c.limit.Scale
		if c.Algorithm.Rolling() {
			lasts *= 2
		}
		c.expect(err == nil && w.Count <= 2004 && w.Left <= lasts+c.Precision && w.Left >= 0, "call %d returns %+v, %v", i, w, err)
	})
	c.Clock.Advance(3 * scales[1])
	for i := range 8 {
		c := of(i).in(scales[i/4])
		c.ended()
		c.opened(c.hit(1), 1)
		c.opened(c.charge(1), 2)
	}
}
