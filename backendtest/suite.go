package backendtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

// suite runs tests.
type suite struct {
	start func(*testing.T) Subject
	in    func(*testing.T, func(*testing.T)) // runs a test in a bubble, or as it is
}

// subtest is the test of a rule.
type subtest struct {
	rule    string
	run     func(calls)
	methods string // that it needs
	of      need
}

// need returns why a test does not apply to a Subject, or "".
type need func(Subject) string

// Methods that tests need.
const (
	counts  = "Hit Charge Peek"
	changes = "Hit Charge Peek Set Reset Delete"
	taking  = "Hit Take Peek"
	several = "Take TakeAll GiveBack Peek"
	giving  = "Hit Take Charge GiveBack Peek Set Reset Delete"
)

var tests = slices.Concat([]subtest{
	{"a backend has all methods but those that it leaves out", testMethods, "", always},
	{"Check returns the error of every call", testCheck, "", always},
	{"a call whose context has ended does nothing", testContext, counts, always},
	{"a call after Close fails with window.ErrClosed", testClosed, "", always},
	{"keys and limits are independent", testIndependence, counts, always},
	{"Reset ends a window, and Delete those of all limits", testDelete, changes, always},
	{"Charge counts what is over the limit", testCharge, taking + " Charge Set", always},
	{"Peek tells what a take would return", testPeek, taking, always},
	{"concurrent calls of all methods leave nothing behind", testAllMethods, changes, always},
	{"another Max is another bound of the same count", testAnotherMax, taking, always},
	{"takes of several limits are granted all or none", testAllOrNone, several, always},
	{"several takes of one count are one of their sum", testRepeated, several, always},
	{"concurrent takes are granted up to the limit", testUpToLimit, taking, always},
	{"concurrent takes and give-backs leave what is held", testHeld, giving, always},
	{"of takes in opposite order one is granted", testOppositeOrder, several, always},
	{"nothing is given back to another window", testGiveBackToAnother, giving, always},
	{"windows that end under concurrent takes exceed no limit", testEndings, giving, always},
	{"random calls agree with a model", testModel, giving, always},
	{"random calls of two clients agree with a model", testModelOfTwo, giving, twoClients},
	{"vectors", testVectors, giving, withVectors},

	{"a window ends one scale after its start", testEnd, counts, fixed},
	{"concurrent hits have counts of their own", testCounts, counts, fixed},
	{"the ID of a window is that of no other", testIDs, giving, fixed},

	{"calendar: vectors", testCalendarVectors, taking, jumpingCalendar},
	{"calendar: a window ends where the next one starts", testCalendarEnds, taking, calendar},
	{"calendar: all calls are of one window", testCalendarCalls, giving, calendar},

	{"rolling: a caller who waits RetryAfter is admitted", testRollingRetry, taking, rolling},
	{"rolling: the limit holds in every interval", testRollingIntervals, giving, rolling},
	{"rolling: numbers can be large", testRollingLargest, changes, rolling},
}, flightTests)

func (s suite) run(t *testing.T) {
	for _, test := range tests {
		s.test(t, test)
	}
}

// test runs a test, or skips it. The skip is outside of the bubble, which would hide it.
func (s suite) test(t *testing.T, test subtest) {
	t.Run(test.rule, func(t *testing.T) {
		why := ""
		s.in(t, func(t *testing.T) {
			subject := s.start(t)
			subject.Algorithm = cmp.Or(subject.Algorithm, window.FixedWindow)
			if why = cmp.Or(test.of(subject), subject.without(test.methods)); why == "" {
				test.run(calls{t, subject, "k", window.Limit{Max: 10, Scale: subject.stretch(time.Minute), Algorithm: subject.Algorithm}})
			}
		})
		if why != "" {
			t.Skip(why)
		}
	})
}

// without returns why the Subject leaves out one of some methods, or "".
func (s Subject) without(methods string) string {
	for _, method := range strings.Fields(methods) {
		if why, without := s.Without[method]; without {
			return fmt.Sprintf("without %s: %s", method, why)
		}
	}
	return ""
}

// always is what tests need whose algorithm does not matter.
func always(Subject) string { return "" }

func fixed(s Subject) string {
	if s.Algorithm.Rolling() {
		return fmt.Sprintf("for fixed windows, and the algorithm is %v", s.Algorithm)
	}
	return ""
}

func rolling(s Subject) string {
	if !s.Algorithm.Rolling() {
		return fmt.Sprintf("for rolling algorithms, and the algorithm is %v", s.Algorithm)
	}
	return ""
}

// once is what tests need that say their algorithm, or have none.
func once(s Subject) string {
	if s.Algorithm != window.FixedWindow {
		return fmt.Sprintf("for %v, and the algorithm is %v", window.FixedWindow, s.Algorithm)
	}
	return ""
}

func withVectors(s Subject) string {
	if s.Algorithm.Rolling() {
		return ""
	}
	return once(s)
}

// calendar asks the backend, as other algorithms are asked for.
func calendar(s Subject) string {
	l := window.Limit{Max: 1, Calendar: window.Month, Algorithm: window.CalendarWindow}
	if _, err := s.Backend.Check(l); errors.Is(err, window.ErrUnsupported) {
		return "for backends with calendar windows"
	}
	return once(s)
}

// jumpingCalendar is for clocks that jump over decades: in a bubble, backends do all that they do in the background
// meanwhile.
func jumpingCalendar(s Subject) string {
	if _, sleeps := s.Clock.(BubbleClock); sleeps {
		return "for clocks that jump"
	}
	return calendar(s)
}

func twoClients(s Subject) string {
	if s.Second == nil {
		return "for backends of which a store can have two"
	}
	return ""
}
