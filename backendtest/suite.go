package backendtest

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// property is what a backend must have: a sentence, and its test.
type property struct {
	sentence string
	test     func(s *suite)
	needs    []need
}

// need returns why a test does not apply to a Subject, or "".
type need func(s *suite) string

// properties are all that the suite tests. Places in flight have nothing to do with algorithms.
var properties = []property{
	{"a backend has all methods but those that it leaves out", testMethods, nil},
	{"Check returns the error of every call", testCheck, nil},
	{"a call whose context has ended does nothing", testContext, nil},
	{"a call after Close fails with window.ErrClosed", testClosed, nil},
	{"keys and limits are independent", testIndependence, nil},
	{"numbers can be large", testLargest, nil},
	{"the loop of a list may call the backend, and end early", testLoops, []need{have(list, take)}},
	{"vectors", testVectors, []need{vectors, have(giveBack)}},
	{"random calls agree with a model", func(s *suite) { s.random(6, 500, 1) }, nil},
	{"random calls of two clients agree with a model", func(s *suite) { s.random(3, 1000, 2) }, []need{twoClients}},
	{"concurrent takes and give-backs leave what is held", testStorms, nil},
	{"of takes in opposite order one is granted", testOppositeOrder, []need{have(takeAll)}},
	{"windows that end under concurrent takes exceed no limit", testEndings,
		[]need{have(giveBack, reset, set, deleteAll)}},
	{"in flight: vectors", testFlights, []need{once, have(exchange)}},
	{"in flight: keys and names are independent", testPlacesOfKeys, []need{once, have(exchange)}},
	{"in flight: concurrent claims are granted up to Max", testPlacesAtOnce, []need{once, have(exchange)}},
	{"in flight: random claims agree with a model", testFlightModel, []need{once, have(exchange)}},
}

// run tests all properties. The function in runs a test in a bubble, or as it is.
func run(t *testing.T, start func(t *testing.T) Subject, in func(*testing.T, func(*testing.T))) {
	for _, p := range properties {
		t.Run(p.sentence, func(t *testing.T) {
			why := ""
			in(t, func(t *testing.T) {
				s := newSuite(t, start(t))
				for _, need := range p.needs {
					why = cmp.Or(why, need(s))
				}
				if why == "" {
					p.test(s)
				}
			})
			if why != "" {
				t.Skip(why) // outside of the bubble, which would hide it
			}
		})
	}
}

// suite makes the calls of a test. All that are made one after the other are made by the model, too.
type suite struct {
	*testing.T
	Subject
	backends []window.Backend // of each client
	clients  int              // how many make random calls
	unit     time.Duration    // a millisecond of the tests, which is longer if the backend has no short scales
	// The model has:
	counts map[window.Take]*record // by identityOf
	ledger *ledger.Ledger          // of places in flight
	tokens map[place]uint64        // the last ones
}

func newSuite(t *testing.T, subject Subject) *suite {
	subject.Algorithm = cmp.Or(subject.Algorithm, window.FixedWindow)
	s := &suite{T: t, Subject: subject, backends: []window.Backend{subject.Backend}, unit: time.Millisecond,
		counts: map[window.Take]*record{}, tokens: map[place]uint64{}}
	if s.Second != nil {
		s.backends = append(s.backends, s.Second)
	}
	start := s.Clock.Now()
	s.ledger = ledger.New(1024, func() time.Duration { return s.Clock.Now().Sub(start) })
	shortest := window.Limit{Max: 1, Algorithm: subject.Algorithm}
	for s.unit < time.Second {
		shortest.Scale = 100 * s.unit
		if _, err := s.Backend.Check(shortest); err == nil {
			break
		}
		s.unit *= 10
	}
	return s
}

// try makes a call that must not fail. If it does, the answer is Refused: a test that goes on must not count on a
// grant.
func (s *suite) try(c call) answer {
	s.Helper()
	a := c.of(s.Context(), s.backends[c.client])
	if a.err != nil {
		s.Errorf("%v: error %v", c, a.err)
		a.Refused = true
	}
	return a
}

// expect fails the test if ok is false.
func (s *suite) expect(ok bool, format string, args ...any) {
	s.Helper()
	if !ok {
		s.Errorf(format, args...)
	}
}

func (s *suite) now() int64 { return s.Clock.Now().UnixNano() }

// traits returns what the backend promises about a limit.
func (s *suite) traits(l window.Limit) window.Traits {
	traits, err := s.Backend.Check(l)
	s.expect(err == nil, "Check(%v): error %v", l, err)
	return traits
}

// bounded returns n, or the largest count if that is less.
func (s *suite) bounded(n uint64) uint64 {
	return min(n, cmp.Or(s.traits(s.count("").limit).MaxCount, window.Unlimited))
}

const goroutines = 64

// concurrently calls f with 0 to n-1, from many goroutines.
func concurrently(n int, f func(i int)) {
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n; i += goroutines {
				f(i)
			}
		})
	}
	all.Wait()
}

// count makes calls of one count: of a key and a limit.
type count struct {
	*suite
	key    string
	limit  window.Limit
	client int // by which it is called
}

// count returns calls of a key and a limit of 10 in a minute.
func (s *suite) count(key string) count {
	return count{s, key, window.Limit{Max: 10, Scale: 60_000 * s.unit, Algorithm: s.Algorithm}, 0}
}

func (c count) on(key string) count          { c.key = key; return c }
func (c count) named(name string) count      { c.limit.Name = name; return c }
func (c count) in(scale time.Duration) count { c.limit.Scale = scale; return c }
func (c count) upTo(most uint64) count       { c.limit.Max = most; return c }
func (c count) withBurst(burst uint64) count { c.limit.Burst = burst; return c }
func (c count) by(client int) count          { c.client = client; return c }
func (c count) of(a window.Algorithm) count  { c.limit.Algorithm = a; return c }
func (c count) take(n uint64) window.Take    { return c.limit.For(c.key, n) }
func (c count) call(m method, n uint64) call {
	return call{method: m, Take: c.take(n), client: c.client}
}
func (c count) do(m method, n uint64) answer  { c.Helper(); return c.suite.do(c.call(m, n)) }
func (c count) try(m method, n uint64) answer { c.Helper(); return c.suite.try(c.call(m, n)) }

// ofCalendar returns calls of a count in a unit of the calendar.
func (c count) ofCalendar(unit window.Calendar, zone string, start uint8) count {
	c.limit = window.Limit{Name: c.limit.Name, Max: c.limit.Max, Calendar: unit, Zone: zone, StartDay: start,
		Algorithm: window.CalendarWindow}
	return c
}

// record returns what the model knows of the count.
func (c count) record() *record {
	t := c.take(0)
	return c.suite.record(&t)
}

// kinds returns counts whose limits differ in their name, algorithm or calendar, and have the same Max and scale.
func (c count) kinds(names ...string) (all []count) {
	for _, a := range limits.Algorithms {
		if _, err := c.Backend.Check(c.of(a).limit); errors.Is(err, window.ErrUnsupported) {
			continue
		}
		for _, name := range names {
			all = append(all, c.of(a).named(name))
		}
	}
	if calendar(c.suite) != "" {
		return all
	}
	for unit := window.Day; unit <= window.Year; unit++ {
		all = append(all, c.ofCalendar(unit, "", 0))
	}
	month := func(zone string, start uint8) count { return c.ofCalendar(window.Month, zone, start) }
	return append(all,
		c.ofCalendar(window.Week, "", 2), month("", 2), month("", 12), month("Europe/Berlin", 2),
		month("Europe/Berlin", 0), month("Europe/Vienna", 0), month("Etc/UTC", 0), month("", 0).named("2"),
		month("", 0).named("UTC"), month("Europe/Berlin", 0).named("n"),
	)
}

// have is the need of methods that the Subject may leave out.
func have(needed ...method) need {
	return func(s *suite) string {
		for _, m := range needed {
			if why, without := s.Without[string(m)]; without {
				return fmt.Sprintf("without %s: %s", m, why)
			}
		}
		return ""
	}
}

// has reports whether the backend has a method that the Subject may leave out.
func (s *suite) has(m method) bool { return have(m)(s) == "" }

// once is the need of tests whose algorithm is not that of the Subject: they run for one of the algorithms.
func once(s *suite) string {
	if s.Algorithm != window.FixedWindow {
		return fmt.Sprintf("for %v, and the algorithm is %v", window.FixedWindow, s.Algorithm)
	}
	return ""
}

// vectors is the need of vectors of the algorithm.
func vectors(s *suite) string {
	if s.Algorithm == window.AlignedWindow {
		return "there are no vectors of aligned windows"
	}
	return ""
}

// calendar is the need of calendar windows. Their algorithm is not that of the Subject.
func calendar(s *suite) string {
	_, err := s.Backend.Check(s.count("").ofCalendar(window.Month, "", 0).limit)
	if errors.Is(err, window.ErrUnsupported) {
		return "for backends with calendar windows"
	}
	return once(s)
}

// twoClients is the need of a Second.
func twoClients(s *suite) string {
	if s.Second == nil {
		return "for backends of which a store can have two"
	}
	return ""
}

// precision is that of most limits of the tests.
func (s *suite) precision() time.Duration { return s.traits(s.count("").limit).Precision }
