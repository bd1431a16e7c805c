package backendtest

import (
	"cmp"
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
	for _, test := range slices.Concat(anyTests, fixedTests) {
		s.test(t, test)
	}
	t.Run("vectors", s.vectors)
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
	{"takes of several limits are granted all or none", testAllOrNone, several},
	{"several takes of one count are one of their sum", testRepeated, several},
	{"concurrent takes and hits are granted up to the limit", testTakenLimit, taking},
	{"concurrent takes and give-backs leave what is held", testHeld, giving},
	{"of takes in opposite order one is granted", testOppositeOrder, several},
	{"calls of two clients at once leave what is held", testTwoAtOnce, also(giving, twoClients)},
}

// fixedTests are for fixed windows.
var fixedTests = []subtest{
	{"a window ends one scale after its start", testEnd, also(counts, fixed)},
	{"concurrent hits return distinct counts", testDistinctCounts, also(counts, fixed)},
	{"concurrent first hits open one window", testOpenings, also(counts, fixed)},
	{"concurrent hits are allowed up to the limit", testLimit, also(counts, fixed)},
	{"numbers and limits of one key can differ", testMixed, also(counts, fixed)},
	{"Set replaces the window", testSet, also(changes, fixed)},
	{"random calls agree with a model", testModel, also(giving, having("TakeAll"), fixed)},
	{"random calls of two clients agree with a model", testModelOfTwo, also(giving, having("TakeAll"), fixed, twoClients)},
	{"a take that is refused changes nothing", testRefusal, also(taking, having("Set"), fixed)},
	{"what is given back can be taken again", testGiveBack, also(several, fixed)},
	{"nothing is given back to another window", testGiveBackToAnother, also(giving, fixed)},
	{"the ID of a window is that of no other", testIDs, also(giving, fixed)},
	{"concurrent takes of several windows leave what is granted", testHeldOfSeveral, also(several, fixed)},
	{"takes that end windows and others overlap exceed no limit", testTakesAtTheEnd, also(giving, fixed)},
}

// rollingTests are for rolling algorithms.
var rollingTests = []subtest{
	{"rolling: vectors", testRollingVectors, also(giving, isRolling)},
	{"rolling: a hit that is refused changes nothing", testRollingRefusal, also(taking, isRolling)},
	{"rolling: a caller who waits RetryAfter is admitted", testRollingRetry, also(taking, isRolling)},
	{"rolling: the limit holds in every interval", testRollingIntervals, also(taking, isRolling)},
	{"rolling: Set and Reset forget what was counted", testRollingForgets, also(changes, isRolling)},
	{"rolling: numbers can be large", testRollingLargest, also(changes, isRolling)},
	{"rolling: what is given back can be taken again, once", testRollingGiveBack, also(giving, isRolling)},
	{"rolling: nothing is given back after Set and Reset", testRollingGiveBackToAnother, also(giving, isRolling)},
	{"rolling: what has come back by itself is not given back", testRollingGiveBackLater, also(giving, isRolling)},
	{"rolling: a second give-back gives nothing back that has come back by itself", testRollingGiveBackTwo, also(giving, isRolling)},
	{"rolling: random calls agree with a model", testRollingModel, also(giving, isRolling)},
	{"rolling: random calls of two clients agree with a model", testRollingModelOfTwo, also(giving, isRolling, twoClients)},
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
