package backendtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/throttr-go/throttr/window"
)

// suite runs tests.
type suite struct {
	start func(*testing.T) Subject
	in    func(*testing.T, func(*testing.T)) // runs a test in a bubble, or as it is
}

// subtest is a test that needs something of a Subject.
type subtest struct {
	name  string
	run   func(calls)
	needs []need
}

// need returns why a test does not apply to a Subject, or "".
type need func(Subject) string

func (s suite) run(t *testing.T) {
	for _, test := range slices.Concat(anyTests, flightTests, calendarTests, fixedTests) {
		s.test(t, test)
	}
	for _, test := range rollingTests {
		s.test(t, test)
	}
}

// test runs a test, or skips it. The skip is outside of the bubble, which would hide it.
func (s suite) test(t *testing.T, test subtest) {
	t.Run(test.name, func(t *testing.T) {
		why := ""
		s.in(t, func(t *testing.T) {
			subject := s.start(t)
			subject.Algorithm = cmp.Or(subject.Algorithm, window.FixedWindow)
			for _, needs := range test.needs {
				if why = needs(subject); why != "" {
					return
				}
			}
			test.run(calls{T: t, Subject: subject, most: 10})
		})
		if why != "" {
			t.Skip(why)
		}
	})
}

// What tests need. With those that are for all algorithms, the algorithm of the Subject does not matter.
var (
	always  = []need(nil)
	counts  = []need{having("Hit", "Charge", "Peek")}
	changes = []need{having("Hit", "Charge", "Peek", "Set", "Reset", "Delete")}
	taking  = []need{having("Hit", "Take", "Peek")}
	several = []need{having("Take", "TakeAll", "GiveBack", "Peek")}
	flight  = []need{having("Exchange"), perKey} // places have nothing to do with algorithms
	giving  = []need{having("Hit", "Take", "Charge", "GiveBack", "Peek", "Set", "Reset", "Delete")}
)

// also returns needs and others.
func also(needs []need, more ...need) []need { return slices.Concat(needs, more) }

// anyTests are for all backends.
var anyTests = []subtest{
	{"a backend has all methods but those that it leaves out", testMethods, always},
	{"Check returns the error of every call", testCheck, always},
	{"a call whose context has ended does nothing", testContext, counts},
	{"a call after Close fails with window.ErrClosed", testClosed, always},
	{"keys, names, scales and algorithms are independent", testIndependence, counts},
	{"Reset ends a window, and Delete those of all names and algorithms", testDelete, changes},
	{"Charge counts what is over the limit", testCharge, also(taking, having("Charge", "Set"))},
	{"Peek tells what a take would return", testPeek, taking},
	{"concurrent calls of all methods leave nothing behind", testAllMethods, changes},
	{"another Max is another bound of the same count", testAnotherMax, taking},
	{"takes of several limits are granted all or none", testAllOrNone, several},
	{"several takes of one count are one of their sum", testRepeated, several},
	{"concurrent takes and hits are granted up to the limit", testTakenLimit, taking},
	{"concurrent takes and give-backs leave what is held", testHeld, giving},
	{"of takes in opposite order one is granted", testOppositeOrder, several},
	{"nothing is given back to another window", testGiveBackToAnother, giving},
	{"random calls agree with a model", testModel, giving},
	{"random calls of two clients agree with a model", testModelOfTwo, also(giving, twoClients)},
	{"calls of two clients at once leave what is held", testTwoAtOnce, also(giving, twoClients)},
}

// flightTests are for places in flight.
var flightTests = []subtest{
	{"in flight: a claim that is not valid, or has no context, or comes after Close, does nothing", testClaims, flight},
	{"in flight: up to Max places are held", testPlaces, flight},
	{"in flight: a process that is silent for a lease holds nothing", testLease, flight},
	{"in flight: a late claim does nothing, and a later one says the whole truth", testLate, flight},
	{"in flight: what the store does not know is believed as long as it fits", testBelieved, flight},
	{"in flight: a process waits in line", testLine, flight},
	{"in flight: a process that is silent loses its position in line", testLapse, flight},
	{"in flight: keys and names are independent", testPlacesOfKeys, flight},
	{"in flight: ListPlaces returns who holds places or waits", testListPlaces, flight},
	{"in flight: concurrent claims are granted up to Max", testPlacesAtOnce, flight},
	{"in flight: random claims agree with a model", testFlightModel, flight},
}

// calendarTests are for calendar windows.
var calendarTests = []subtest{
	{"calendar: vectors", testCalendarVectors, also(taking, perKey, withCalendar, jumping)},
	{"calendar: a window ends where the next one starts", testCalendarEnds, also(taking, perKey, withCalendar)},
	{"calendar: all calls are of one window", testCalendarCalls, also(giving, having("Take"), perKey, withCalendar)},
	{"calendar: windows that end under concurrent takes exceed no limit", testCalendarCrossed, also(giving, having("Take"), perKey, withCalendar)},
	{"calendar: names, units, zones and start days are independent", testCalendarIndependence, also(changes, perKey, withCalendar)},
	{"calendar: takes of other algorithms, too, are granted all or none", testCalendarAllOrNone, also(several, perKey, withCalendar)},
	{"calendar: a limit that is a mistake fails every call", testCalendarMistakes, also(always, perKey, withCalendar)},
}

// fixedTests are for fixed windows.
var fixedTests = []subtest{
	{"a window ends one scale after its start", testEnd, also(counts, fixed)},
	{"concurrent first hits open one window", testOpenings, also(counts, fixed)},
	{"concurrent hits are allowed up to the limit", testLimit, also(counts, fixed)},
	{"vectors", testVectors, also(changes, perKey)},
	{"the ID of a window is that of no other", testIDs, also(giving, fixed)},
	{"concurrent takes of several windows leave what is granted", testHeldOfSeveral, also(several, fixed)},
	{"takes that end windows and others overlap exceed no limit", testTakesAtTheEnd, also(giving, fixed)},
}

// rollingTests are for rolling algorithms.
var rollingTests = []subtest{
	{"rolling: vectors", testVectors, also(giving, isRolling)},
	{"rolling: a caller who waits RetryAfter is admitted", testRollingRetry, also(taking, isRolling)},
	{"rolling: the limit holds in every interval", testRollingIntervals, also(taking, isRolling)},
	{"rolling: numbers can be large", testRollingLargest, also(changes, isRolling)},
	{"rolling: what has come back by itself is not given back", testRollingGiveBackLater, also(giving, isRolling)},
	{"rolling: a second give-back gives nothing back that has come back by itself", testRollingGiveBackTwo, also(giving, isRolling)},
}

func fixed(s Subject) string {
	if s.Algorithm.Rolling() {
		return fmt.Sprintf("for fixed windows, and the algorithm is %v", s.Algorithm)
	}
	return ""
}

func perKey(s Subject) string {
	if s.Algorithm != window.FixedWindow {
		return fmt.Sprintf("for %v, and the algorithm is %v", window.FixedWindow, s.Algorithm)
	}
	return ""
}

// jumping tells whether the clock jumps over decades: in a bubble, backends do all that they do in the background meanwhile.
func jumping(s Subject) string {
	if _, sleeps := s.Clock.(BubbleClock); sleeps {
		return "for clocks that jump"
	}
	return ""
}

// withCalendar asks the backend, as other algorithms are asked for.
func withCalendar(s Subject) string {
	l := window.Limit{Max: 1, Calendar: window.Month, Algorithm: window.CalendarWindow}
	if _, err := s.Backend.Check(l); errors.Is(err, window.ErrUnsupported) {
		return "for backends with calendar windows"
	}
	return ""
}

func isRolling(s Subject) string {
	if !s.Algorithm.Rolling() {
		return fmt.Sprintf("for rolling algorithms, and the algorithm is %v", s.Algorithm)
	}
	return ""
}

func twoClients(s Subject) string {
	if s.Second == nil {
		return "for backends of which a store can have two"
	}
	return ""
}

// having returns the need of methods. If a backend does not have one, and does not leave it out either,
// the test fails.
func having(methods ...string) need {
	return func(s Subject) string {
		for _, method := range methods {
			if why, without := s.Without[method]; without {
				return fmt.Sprintf("without %s: %s", method, why)
			}
		}
		return ""
	}
}
