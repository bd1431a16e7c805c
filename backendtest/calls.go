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

// calls makes calls that must succeed. Their limits have the Algorithm of the Subject.
type calls struct {
	*testing.T
	Subject
	most  uint64 // the Max of calls without one
	name  string // of the limits
	burst uint64 // of the limits
	on    day    // of the limits, in place of a scale, if it has a unit
}

// upTo returns c with another Max for calls without one. That of fixed windows does not matter.
func (c calls) upTo(most uint64) calls { c.most = most; return c }

// named returns c with limits of a name.
func (c calls) named(name string) calls { c.name = name; return c }

// of returns c with limits of another algorithm of the backend.
func (c calls) of(a window.Algorithm) calls {
	c.Helper()
	if a == c.Algorithm {
		return c
	}
	c.Algorithm = a
	traits, err := c.Backend.Check(c.limit(time.Minute, 5))
	if err != nil {
		c.Fatalf("Check: %v", err)
	}
	c.Precision, c.MaxCount = max(c.Precision, traits.Precision), traits.MaxCount
	return c
}

// algorithms returns the algorithms that the backend has.
func (c calls) algorithms() (all []window.Algorithm) {
	for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
		c.Algorithm = a
		if _, err := c.Backend.Check(c.limit(time.Minute, 5)); !errors.Is(err, window.ErrUnsupported) {
			all = append(all, a)
		}
	}
	return all
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

func (c calls) limit(scale time.Duration, most uint64) window.Limit {
	if c.on.unit != 0 {
		return c.on.limit(c.name, most)
	}
	return window.Limit{Name: c.name, Max: most, Scale: scale, Burst: c.burst, Algorithm: c.Algorithm}
}

// expect fails the test if ok is false.
func (c calls) expect(ok bool, format string, args ...any) {
	c.Helper()
	if !ok {
		c.Errorf(format, args...)
	}
}

// checked fails the test if a call has failed.
func (c calls) checked(err error, call, key string, l window.Limit, n uint64) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s(%.40q, %+v, %d): %v", call, key, l, n, err)
	}
}

// call makes a call.
func (c calls) call(name string, f func(context.Context, string, window.Limit, uint64) (window.Window, error), key string, scale time.Duration, most, n uint64) window.Window {
	c.Helper()
	l := c.limit(scale, most)
	w, err := f(c.Context(), key, l, n)
	c.checked(err, name, key, l, n)
	return w
}

func (c calls) hit(key string, scale time.Duration, most, n uint64) window.Window {
	c.Helper()
	return c.asCounted(c.call("Hit", c.Backend.Hit, key, scale, most, n), n)
}

func (c calls) take(key string, scale time.Duration, most, n uint64) window.Window {
	c.Helper()
	return c.call("Take", c.Backend.Take, key, scale, most, n)
}

// granted fails the test unless a take is granted.
func (c calls) granted(key string, scale time.Duration, most, n uint64) window.Window {
	c.Helper()
	w := c.take(key, scale, most, n)
	c.expect(!w.Refused && w.RetryAfter == 0, "a take of %d of %d is refused: %+v", n, most, w)
	return w
}

// refused fails the test unless a take is refused, and tells when it would not be.
func (c calls) refused(key string, scale time.Duration, most, n uint64) window.Window {
	c.Helper()
	w := c.take(key, scale, most, n)
	c.expect(w.Refused, "a take of %d of %d is granted: %+v", n, most, w)
	c.retries(w, c.limit(scale, most), n)
	return w
}

// retries fails the test if the RetryAfter of a call that was refused is wrong, as far as that can be
// told from the window.
func (c calls) retries(w window.Window, l window.Limit, n uint64) {
	c.Helper()
	retry := cmp.Or(w.RetryAfter, w.Left)
	switch {
	case n > limits.Capacity(l) && retry == window.Never:
	case n <= limits.Capacity(l) && retry > 0 && retry != window.Never && (l.Algorithm.Rolling() || retry == w.Left):
	default:
		c.Errorf("a call of %d of %d is refused until RetryAfter: %+v", n, l.Max, w)
	}
}

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
func (c calls) charge(key string, scale time.Duration, n uint64) window.Window {
	c.Helper()
	w := c.call("Charge", c.Backend.Charge, key, scale, c.most, n)
	c.expect(!w.Refused, "a charge of %d is refused: %+v", n, w)
	return w
}

func (c calls) peek(key string, scale time.Duration, most, n uint64) window.Window {
	c.Helper()
	return c.call("Peek", c.Backend.Peek, key, scale, most, n)
}

// get returns the window, whatever its limit is.
func (c calls) get(key string, scale time.Duration) window.Window {
	c.Helper()
	w := c.peek(key, scale, c.most, 0)
	w.Refused, w.RetryAfter = false, 0
	return w
}

func (c calls) set(key string, scale time.Duration, n uint64) window.Window {
	c.Helper()
	return c.call("Set", c.Backend.Set, key, scale, c.most, n)
}

func (c calls) reset(key string, scale time.Duration) {
	c.Helper()
	l := c.limit(scale, c.most)
	c.checked(c.Backend.Reset(c.Context(), key, l), "Reset", key, l, 0)
}

func (c calls) delete(key string, scales ...time.Duration) int {
	c.Helper()
	n, err := c.Backend.Delete(c.Context(), key, scales...)
	if err != nil {
		c.Fatalf("Delete(%q, %v): %v", key, scales, err)
	}
	return n
}

// giveBack gives back, and reports whether the window has got it. If the window is open, it must,
// unless the backend MayLose.
func (c calls) giveBack(key string, scale time.Duration, id int64, n uint64, open bool) bool {
	c.Helper()
	l := c.limit(scale, c.most)
	ok, err := c.Backend.GiveBack(c.Context(), key, l, n, id)
	c.checked(err, "GiveBack", key, l, n)
	if ok != open && (ok || !c.MayLose) {
		c.Errorf("GiveBack(%q, %+v, %d, %d) returns %v, want %v", key, l, n, id, ok, open)
	}
	return ok
}

// want fails the test unless w is an active window with the given count, and the given end if it is
// a fixed window. With a rolling algorithm, a count of 0 is no window.
func (c calls) want(w window.Window, count uint64, end time.Time) {
	c.Helper()
	now, rolling := c.Clock.Now(), c.Algorithm.Rolling()
	if rolling && count == 0 {
		c.none(w)
		return
	}
	c.expect(w.Count == count, "Count is %d, want %d", w.Count, count)
	if !rolling && c.wrongEnd(end, w.ExpiresAt) {
		c.Errorf("ExpiresAt is %v, want %v, or up to %v later", w.ExpiresAt, end, c.Precision)
	}
	c.expect(w.Left == w.ExpiresAt.Sub(now) && w.Left > 0, "Left is %v, ExpiresAt is %v, the time is %v", w.Left, w.ExpiresAt, now)
}

// state is want without an end.
func (c calls) state(w window.Window, count uint64) {
	c.Helper()
	c.want(w, count, w.ExpiresAt)
}

// none fails the test unless w is no window.
func (c calls) none(w window.Window) {
	c.Helper()
	if c.Algorithm.Rolling() {
		w.ID = 0 // it identifies nothing
	}
	if w.Refused, w.RetryAfter = false, 0; w != (window.Window{}) {
		c.Errorf("got window %+v, want none", w)
	}
}

// end returns when a window that opens now ends.
func (c calls) end(scale time.Duration) time.Time {
	now := c.Clock.Now()
	switch c.Algorithm {
	case window.AlignedWindow:
		now = limits.AlignedStart(now, scale)
	case window.CalendarWindow:
		_, end := c.on.window(c, now)
		return end
	}
	return now.Add(scale)
}

// nextAligned returns how long it is to the end of the aligned window of now.
func (c calls) nextAligned(scale time.Duration) time.Duration {
	now := c.Clock.Now()
	return limits.AlignedStart(now, scale).Add(scale).Sub(now)
}

// method is one of a backend's methods.
type method struct {
	name string
	call func(ctx context.Context, key string, l window.Limit) error
}

// methods returns a call of each method that has a limit, or a scale.
func (c calls) methods() []method {
	b, hour := c.Backend, c.limit(time.Hour, 5)
	of := func(name string, f func(context.Context, string, window.Limit, uint64) (window.Window, error)) method {
		return method{name, func(ctx context.Context, key string, l window.Limit) error {
			_, err := f(ctx, key, l, 1)
			return err
		}}
	}
	return []method{
		of("Hit", b.Hit), of("Take", b.Take), of("Charge", b.Charge), of("Peek", b.Peek), of("Set", b.Set), {"Reset", b.Reset},
		{"TakeAll", func(ctx context.Context, key string, l window.Limit) error {
			_, err := b.TakeAll(ctx, []window.Take{hour.For(key, 1), l.For(key, 1)}, make([]window.Window, 2))
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
	}
}

// present returns the methods that the backend does not leave out, and that of Delete without scales.
func (c calls) present() []method {
	all := append(c.methods(), method{"Delete without scales", func(ctx context.Context, key string, _ window.Limit) error {
		_, err := c.Backend.Delete(ctx, key)
		return err
	}})
	return slices.DeleteFunc(all, func(m method) bool {
		name, _, _ := strings.Cut(m.name, " ")
		_, without := c.Without[name]
		return without
	})
}
