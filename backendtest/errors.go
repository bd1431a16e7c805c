package backendtest

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

var errorProperties = []property{
	{"a backend has all methods but those that it leaves out", testMethods, nil},
	{"Check returns the error of every call", testCheck, nil},
	{"a call whose context has ended does nothing", testContext, nil},
	{"a call after Close fails with window.ErrClosed", testClosed, nil},
}

// example returns a call of each method, by which is meant that which is tested by itself: TakeAll has another take, too.
func (c count) example(m method) call {
	one := c.call(m, 1)
	switch m {
	case giveBack:
		one.id = 1
	case takeAll:
		one.takes = []window.Take{c.suite.count(c.key).in(time.Hour).take(1), c.take(1)}
	case deleteAll:
		one.scales = []time.Duration{c.limit.Scale}
	case exchange:
		one.claims = []window.Claim{{Key: c.key}}
	}
	return one
}

// present returns the methods that the backend does not leave out.
func (s *suite) present() []method {
	return slices.DeleteFunc(slices.Clone(methods), func(m method) bool { return have(m)(s) != "" })
}

// testMethods compares the methods of a backend with those that its Subject leaves out.
func testMethods(s *suite) {
	for _, second := range s.clients() {
		c := s.count("k").by(second)
		for _, m := range methods {
			err := c.example(m).of(s.Context(), s.backend(second)).err
			why, without := s.Without[string(m)]
			switch unsupported := errors.Is(err, window.ErrUnsupported); {
			case unsupported && !without:
				s.Errorf("%s of %T returns error %v, and Subject.Without does not name it: is it missing, or misspelt?", m, s.backend(second), err)
			case !unsupported && without:
				s.Errorf("%T has a method %s, although Subject.Without names it", s.backend(second), m)
			case without && why == "":
				s.Errorf("Subject.Without has no reason for %s", m)
			case err != nil && !without:
				s.Errorf("%v: error %v", c.example(m), err)
			}
		}
	}
	for name := range s.Without {
		s.expect(slices.Contains(methods, method(name)), "Subject.Without has %q, which is no method, or one that need not be named", name)
	}
}

// mistakes are limits with an error: changes of one that is valid.
type mistakes struct {
	sentinel error
	valid    window.Limit
	changes  []func(l *window.Limit)
}

func (s *suite) mistakes() (all []mistakes) {
	valid := s.count("k").limit
	most := s.bounded(window.Unlimited)
	all = []mistakes{{window.ErrRange, valid, []func(l *window.Limit){
		func(l *window.Limit) { l.Name = strings.Repeat("n", 65) },
		func(l *window.Limit) { l.Name = "new\nline" },
		func(l *window.Limit) { l.Max = window.Unlimited + 1 },
		func(l *window.Limit) { l.Max = math.MaxUint64 },
		func(l *window.Limit) { l.Max = most + 1 },
		func(l *window.Limit) { l.Calendar = window.Month },
		func(l *window.Limit) { l.Calendar = math.MaxUint8 },
		func(l *window.Limit) { l.StartDay = 1 },
		func(l *window.Limit) { l.Zone = "Europe/Berlin" },
		func(l *window.Limit) { l.Algorithm = window.CalendarWindow },
		func(l *window.Limit) { l.Algorithm, l.Burst = window.FixedWindow, 1 },
	}}, {window.ErrRange, s.count("k").of(window.TokenBucket).limit, []func(l *window.Limit){
		func(l *window.Limit) { l.Burst = window.Unlimited + 1 },
		func(l *window.Limit) { l.Burst, l.Scale = math.MaxInt32, 200*time.Hour },
	}}, {window.ErrUnsupported, valid, []func(l *window.Limit){
		func(l *window.Limit) { l.Algorithm = 0 },
		func(l *window.Limit) { l.Algorithm = 201 },
		func(l *window.Limit) { l.Algorithm = math.MaxUint8 },
	}}}
	if s.Algorithm == window.TokenBucket {
		all[1].changes = append(all[1].changes, func(l *window.Limit) { l.Burst = most + 1 })
	}
	if calendar(s) == "" {
		all = append(all, mistakes{window.ErrRange, s.count("k").ofCalendar(window.Month, "Europe/Berlin", 17).limit, []func(l *window.Limit){
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
		}})
	}
	scales := mistakes{window.ErrScale, valid, nil}
	for _, scale := range []time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 60, time.Microsecond, window.MinScale - 1, window.MaxScale + 1, math.MaxInt64} {
		scales.changes = append(scales.changes, func(l *window.Limit) { l.Scale = scale })
	}
	return append(all, scales)
}

// testCheck compares the error of Check with those of all other methods, for limits that are mistakes, and for
// algorithms that the backend does not have.
func testCheck(s *suite) {
	traits, err := s.Backend.Check(s.count("k").limit)
	s.expect(err == nil && traits.Precision >= 0, "Check(%v) returns %+v, %v", s.count("k").limit, traits, err)
	for _, m := range s.mistakes() {
		for _, change := range m.changes {
			l := m.valid
			change(&l)
			s.sameErrors(l, m.sentinel)
		}
	}
	for _, a := range limits.Algorithms {
		l := s.count("k").of(a).limit
		if _, err := s.Backend.Check(l); errors.Is(err, window.ErrUnsupported) {
			s.sameErrors(l, window.ErrUnsupported)
		}
	}
	if slices.Contains(s.present(), peek) {
		s.count("k").do(peek, 0) // nothing was counted
	}
}

// allFields is a limit that is formatted with all its fields: the text of a Limit leaves out what may be the mistake.
type allFields window.Limit

// sameErrors fails the test unless Check and all other methods return the same error for a limit, which matches sentinel,
// or says that the backend does not have the algorithm.
func (s *suite) sameErrors(l window.Limit, sentinel error) {
	s.Helper()
	_, want := s.Backend.Check(l)
	if !errors.Is(want, sentinel) && !errors.Is(want, window.ErrUnsupported) {
		s.Errorf("Check(%+v) returns error %v, want %v", allFields(l), want, sentinel)
		return
	}
	c := s.count("k")
	c.limit = l
	for _, m := range s.present() {
		if m == exchange || m == deleteAll && sentinel != window.ErrScale { // Delete has a scale, but no limit
			continue
		}
		got := c.example(m).of(s.Context(), s.Backend).err
		same := true
		for _, sentinel := range []error{window.ErrScale, window.ErrRange, window.ErrUnsupported} {
			same = same && errors.Is(got, sentinel) == errors.Is(want, sentinel)
		}
		var gotRange, wantRange *window.RangeError
		if errors.As(want, &wantRange) {
			same = same && errors.As(got, &gotRange) && *gotRange == *wantRange
		}
		s.expect(same, "%s with %+v returns error %v, and Check %v", m, allFields(l), got, want)
	}
}

func testContext(s *suite) {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	s.count("k").do(charge, 2)
	for _, c := range []count{s.count("k"), s.count("none")} {
		for _, m := range s.present() {
			calls := []call{c.example(m)}
			if m == deleteAll {
				calls = append(calls, call{method: m, Take: window.Take{Key: c.key}}) // without scales
			}
			for _, call := range calls {
				err := call.of(ctx, s.Backend).err
				s.expect(errors.Is(err, context.Canceled), "%v, whose context was canceled, returns error %v", call, err)
				c.do(peek, 0)
				if s.Failed() {
					s.Fatalf("after %v", call)
				}
			}
		}
	}
}

// testClosed is for backends that can be closed.
func testClosed(s *suite) {
	closer, ok := s.Backend.(io.Closer)
	switch {
	case s.Close != nil:
		s.Close()
	case ok:
		err := closer.Close()
		s.expect(err == nil, "Close: %v", err)
	default:
		return
	}
	for _, m := range s.present() {
		err := s.count("k").example(m).of(s.Context(), s.Backend).err
		s.expect(errors.Is(err, window.ErrClosed), "%s after Close returns error %v, want window.ErrClosed", m, err)
	}
}
