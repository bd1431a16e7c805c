package backendtest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// calls makes calls of a key and a limit, which must succeed.
type calls struct {
	*testing.T
	Subject
	key   string
	limit window.Limit
}

// These return calls of another key or limit.
func (c calls) on(key string) calls          { c.key = key; return c }
func (c calls) named(name string) calls      { c.limit.Name = name; return c }
func (c calls) upTo(most uint64) calls       { c.limit.Max = most; return c }
func (c calls) in(scale time.Duration) calls { c.limit.Scale = scale; return c }
func (c calls) withBurst(burst uint64) calls { c.limit.Burst = burst; return c }

// of returns calls of another algorithm of the backend.
func (c calls) of(a window.Algorithm) calls {
	c.Helper()
	if a != c.Algorithm {
		c.Algorithm = a
		c.limit.Algorithm = a
		c.limit.Burst = 0
		traits, err := c.Backend.Check(c.limit)
		if err != nil {
			c.Fatalf("Check(%+v): %v", c.limit, err)
		}
		c.Precision = max(c.Precision, traits.Precision)
		c.MaxCount = traits.MaxCount
	}
	return c
}

// by returns calls of windows of the calendar.
func (c calls) by(unit window.Calendar, zone string, start uint8) calls {
	c.Algorithm = window.CalendarWindow
	c.limit = window.Limit{Name: c.limit.Name, Max: c.limit.Max, Calendar: unit, Zone: zone, StartDay: start, Algorithm: window.CalendarWindow}
	return c
}

// as returns calls of the count of a take.
func (c calls) as(t window.Take) calls {
	if t.Limit.Calendar == 0 {
		c = c.of(t.Limit.Algorithm)
	}
	c.Algorithm = t.Limit.Algorithm
	c.key = t.Key
	c.limit = t.Limit
	return c
}

// kinds returns calls of limits that differ in their name, algorithm or calendar, and have the same Max and scale.
// They have windows of their own.
func (c calls) kinds(names ...string) (all []calls) {
	for _, a := range limits.Algorithms {
		l := c.limit
		l.Algorithm = a
		if _, err := c.Backend.Check(l); errors.Is(err, window.ErrUnsupported) {
			continue
		}
		for _, name := range names {
			all = append(all, c.of(a).named(name))
		}
	}
	if calendar(c.Subject) != "" {
		return all
	}
	for unit := window.Day; unit <= window.Year; unit++ {
		all = append(all, c.by(unit, "", 0))
	}
	return append(all,
		c.by(window.Week, "", 2), c.by(window.Month, "", 2), c.by(window.Month, "", 12), c.by(window.Month, "Europe/Berlin", 2),
		c.by(window.Month, "Europe/Berlin", 0), c.by(window.Month, "Europe/Vienna", 0), c.by(window.Month, "Etc/UTC", 0),
		c.by(window.Month, "", 0).named("2"), c.by(window.Month, "", 0).named("UTC"), c.by(window.Month, "Europe/Berlin", 0).named("n"),
	)
}

// clients returns c, and the same for the second backend on its store if there is one.
func (c calls) clients() []calls {
	if c.Second == nil {
		return []calls{c}
	}
	second := c
	second.Backend = c.Second
	return []calls{c, second}
}

// expect fails the test if ok is false.
func (c calls) expect(ok bool, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Errorf(format, args...)
	}
}

// checked fails the test if a call has failed.
func (c calls) checked(err error, call string, n uint64) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s(%.40q, %+v, %d): %v", call, c.key, c.limit, n, err)
	}
}

// call makes a call.
func (c calls) call(name string, f func(context.Context, string, window.Limit, uint64) (window.Window, error), n uint64) window.Window {
	c.Helper()
	w, err := f(c.Context(), c.key, c.limit, n)
	c.checked(err, name, n)
	return w
}

// hit returns what a backend would return that counts all hits: see [Subject.RefusesHits] and [Subject.MaxCount].
func (c calls) hit(n uint64) window.Window {
	c.Helper()
	return c.asCounted(c.call("Hit", c.Backend.Hit, n), n)
}

func (c calls) take(n uint64) window.Window {
	c.Helper()
	return c.call("Take", c.Backend.Take, n)
}

// granted fails the test unless a take is granted.
func (c calls) granted(n uint64) window.Window {
	c.Helper()
	w := c.take(n)
	c.expect(!w.Refused && w.RetryAfter == 0, "a take of %d of %d is refused: %+v", n, c.limit.Max, w)
	return w
}

// refused fails the test unless a take is refused, and tells when it would not be.
func (c calls) refused(n uint64) window.Window {
	c.Helper()
	w := c.take(n)
	c.expect(w.Refused, "a take of %d of %d is granted: %+v", n, c.limit.Max, w)
	c.retries(w, n)
	return w
}

// retries fails the test if the RetryAfter of a call that was refused is wrong, as far as that can be
// told from the window.
func (c calls) retries(w window.Window, n uint64) {
	c.Helper()
	retry := cmp.Or(w.RetryAfter, w.Left)
	ok := retry == window.Never
	if n <= limits.Capacity(&c.limit) {
		ok = retry > 0 && retry != window.Never && (c.Algorithm.Rolling() || retry == w.Left)
	}
	c.expect(ok, "a call of %d of %d is refused until RetryAfter: %+v", n, c.limit.Max, w)
}

// takeOf returns a take of the key and limit.
func (c calls) takeOf(n uint64) window.Take { return c.limit.For(c.key, n) }

func (c calls) takeAll(takes ...window.Take) (windows []window.Window, granted bool) {
	c.Helper()
	windows = make([]window.Window, len(takes))
	granted, err := c.Backend.TakeAll(c.Context(), takes, windows)
	if err != nil {
		c.Fatalf("TakeAll(%+v): %v", takes, err)
	}
	return windows, granted
}

// charge counts. A charge is never refused.
func (c calls) charge(n uint64) window.Window {
	c.Helper()
	w := c.call("Charge", c.Backend.Charge, n)
	c.expect(!w.Refused, "a charge of %d is refused: %+v", n, w)
	return w
}

func (c calls) peek(n uint64) window.Window {
	c.Helper()
	return c.call("Peek", c.Backend.Peek, n)
}

// get returns the window, whatever its limit is.
func (c calls) get() window.Window {
	c.Helper()
	w := c.peek(0)
	w.Refused = false
	w.RetryAfter = 0
	return w
}

func (c calls) set(n uint64) window.Window {
	c.Helper()
	return c.call("Set", c.Backend.Set, n)
}

func (c calls) reset() {
	c.Helper()
	c.checked(c.Backend.Reset(c.Context(), c.key, c.limit), "Reset", 0)
}

// delete fails the test unless Delete ends so many windows.
func (c calls) delete(want int, scales ...time.Duration) {
	c.Helper()
	n, err := c.Backend.Delete(c.Context(), c.key, scales...)
	c.expect(err == nil && n == want, "Delete(%q, %v) returns %d, %v, want %d", c.key, scales, n, err, want)
}

// giveBack gives back, and reports whether the window has got it. If the window is open, it must,
// unless the backend MayLose.
func (c calls) giveBack(n uint64, id int64, open bool) bool {
	c.Helper()
	ok, err := c.Backend.GiveBack(c.Context(), c.key, c.limit, n, id)
	c.checked(err, "GiveBack", n)
	c.expect(ok == open || !ok && c.MayLose, "GiveBack(%q, %+v, %d, %d) returns %v, want %v", c.key, c.limit, n, id, ok, open)
	return ok
}

// want fails the test unless w is an active window with the given count, and the given end if it is
// a fixed window. With a rolling algorithm, a count of 0 is no window.
func (c calls) want(w window.Window, count uint64, end time.Time) {
	c.Helper()
	rolling := c.Algorithm.Rolling()
	if rolling && count == 0 {
		c.none(w)
		return
	}
	c.expect(w.Count == count, "Count is %d, want %d", w.Count, count)
	if late := w.ExpiresAt.Sub(end); !rolling && (late < 0 || late > c.Precision) {
		c.Errorf("ExpiresAt is %v, want %v, or up to %v later", w.ExpiresAt, end, c.Precision)
	}
	now := c.Clock.Now()
	c.expect(w.Left == w.ExpiresAt.Sub(now) && w.Left > 0, "Left is %v, ExpiresAt is %v, the time is %v", w.Left, w.ExpiresAt, now)
}

// opened fails the test unless w is a window that has opened now.
func (c calls) opened(w window.Window, count uint64) {
	c.Helper()
	c.want(w, count, c.end())
}

// state is want without an end.
func (c calls) state(w window.Window, count uint64) {
	c.Helper()
	c.want(w, count, w.ExpiresAt)
}

// has fails the test unless the window is active and has a count.
func (c calls) has(count uint64) {
	c.Helper()
	c.state(c.get(), count)
}

// none fails the test unless w is no window.
func (c calls) none(w window.Window) {
	c.Helper()
	if c.Algorithm.Rolling() {
		w.ID = 0 // it identifies nothing
	}
	w.Refused = false
	w.RetryAfter = 0
	c.expect(w == window.Window{}, "got window %+v, want none", w)
}

// ended fails the test if there is a window.
func (c calls) ended() {
	c.Helper()
	c.none(c.get())
}

// end returns when a window that opens now ends.
func (c calls) end() time.Time {
	_, end := c.window(c.Clock.Now())
	return end
}

// window returns the bounds of the window that is active at a time if it has just opened.
func (c calls) window(at time.Time) (start, end time.Time) {
	switch c.Algorithm {
	case window.AlignedWindow:
		at = limits.AlignedStart(at, c.limit.Scale)
	case window.CalendarWindow:
		calendar, err := limits.CalendarOf(&c.limit)
		if err != nil {
			c.Fatal(err)
		}
		return calendar.Window(at)
	}
	return at, at.Add(c.limit.Scale)
}

// nextAligned returns how long it is to the end of the aligned window of now.
func (c calls) nextAligned() time.Duration {
	now := c.Clock.Now()
	return limits.AlignedStart(now, c.limit.Scale).Add(c.limit.Scale).Sub(now)
}

// method is one of a backend's methods.
type method struct {
	name string
	call func(ctx context.Context, key string, l window.Limit) error
}

// methods returns a call of each method that can be left out. Those of Check, Delete and Exchange have no limit.
func (c calls) methods() []method {
	b, hour := c.Backend, c.in(time.Hour)
	of := func(name string, f func(context.Context, string, window.Limit, uint64) (window.Window, error)) method {
		return method{name, func(ctx context.Context, key string, l window.Limit) error {
			_, err := f(ctx, key, l, 1)
			return err
		}}
	}
	return []method{
		of("Hit", b.Hit), of("Take", b.Take), of("Charge", b.Charge), of("Peek", b.Peek), of("Set", b.Set), {"Reset", b.Reset},
		{"TakeAll", func(ctx context.Context, key string, l window.Limit) error {
			_, err := b.TakeAll(ctx, []window.Take{hour.on(key).takeOf(1), l.For(key, 1)}, make([]window.Window, 2))
			return err
		}},
		{"GiveBack", func(ctx context.Context, key string, l window.Limit) error {
			_, err := b.GiveBack(ctx, key, l, 1, 1)
			return err
		}},
		{"Delete", func(ctx context.Context, key string, l window.Limit) error {
			_, err := b.Delete(ctx, key, l.Scale)
			return err
		}},
		{"Delete without scales", func(ctx context.Context, key string, _ window.Limit) error {
			_, err := b.Delete(ctx, key)
			return err
		}},
		{"Exchange", func(ctx context.Context, key string, _ window.Limit) error {
			return b.Exchange(ctx, []window.Claim{{Key: key}}, make([]window.Places, 1))
		}},
	}
}

// present returns the methods that the backend does not leave out.
func (c calls) present() []method {
	return slices.DeleteFunc(c.methods(), func(m method) bool {
		name, _, _ := strings.Cut(m.name, " ")
		return c.without(name) != ""
	})
}
