package backendtest

import (
	"fmt"
	"maps"
	"math"
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
	run   func(*testing.T, Subject)
	needs []need
}

// need returns why a test does not apply to a Subject, or "".
type need func(Subject) string

func (s suite) run(t *testing.T) {
	for _, test := range slices.Concat(anyTests, fixedTests) {
		s.test(t, test)
	}
	t.Run("vectors", s.vectors)
	for _, test := range slices.Concat(takeTests, rollingTests, rollingTakeTests) {
		s.test(t, test)
	}
}

// test runs a test, or skips it. The skip is outside of the bubble, which would hide it.
func (s suite) test(t *testing.T, test subtest) {
	t.Run(test.name, func(t *testing.T) {
		why := ""
		s.in(t, func(t *testing.T) {
			subject := s.start(t)
			for _, needs := range test.needs {
				if why = needs(subject); why != "" {
					return
				}
			}
			test.run(t, subject)
		})
		if why != "" {
			t.Skip(why)
		}
	})
}

// anyTests are for all backends.
var anyTests = []subtest{
	{"a backend has all methods but those that it leaves out", testMethods, nil},
	{"a call whose context has ended does nothing", testContext, nil},
	{"a scale under 1 ms is refused with window.ErrScale", testScales, nil},
	{"a call after Close fails with window.ErrClosed", testClosed, nil},
}

// fixedTests are for backends with fixed windows.
var fixedTests = []subtest{
	{"a window ends one scale after its start", testEnd, []need{fixed}},
	{"a window has a start and the time of its last hit", testTimes, []need{fixed}},
	{"keys and scales are independent", testIndependence, []need{fixed}},
	{"concurrent hits return distinct counts", testDistinctCounts, []need{fixed}},
	{"concurrent first hits open one window", testOpenings, []need{fixed}},
	{"concurrent hits are allowed up to the limit", testLimit, []need{fixed}},
	{"increments and limits of one key can differ", testMixed, []need{fixed}},
	{"concurrent calls of all methods leave nothing behind", testAllMethods, []need{fixed}},
	{"counts do not wrap around", testLargest, []need{fixed, unbounded}},
	{"Set replaces the window", testSet, []need{fixed}},
	{"Reset and Delete end windows", testDelete, []need{fixed}},
	{"a number over MaxCount is refused with window.ErrRange", testRange, []need{fixed, bounded}},
	{"random calls agree with a model", testModel, []need{fixed}},
}

// methodsOf returns for each method that a backend may leave out whether b has it.
func methodsOf(b window.Backend) map[string]bool {
	_, takes := b.(window.Taker)
	_, peeks := b.(window.Peeker)
	_, checks := b.(window.Checker)
	_, tells := b.(window.Teller)
	return map[string]bool{"Take": takes, "Peek": peeks, "Check": checks, "Algorithm": tells}
}

// testMethods compares the methods of a backend with those that its Subject leaves out.
func testMethods(t *testing.T, s Subject) {
	for _, b := range s.clients() {
		has := methodsOf(b)
		for _, method := range slices.Sorted(maps.Keys(has)) {
			why, without := s.Without[method]
			switch {
			case !without && !has[method]:
				t.Errorf("%T has no method %s, which Subject.Without does not name", b, method)
			case without && has[method]:
				t.Errorf("%T has a method %s, although Subject.Without names it", b, method)
			case without && why == "":
				t.Errorf("Subject.Without has no reason for %s", method)
			}
		}
		for method := range s.Without {
			if _, known := has[method]; !known {
				t.Errorf("Subject.Without has %q, want one of %q", method, slices.Sorted(maps.Keys(has)))
			}
		}
		if got := window.AlgorithmOf(b); has["Algorithm"] && got != s.Algorithm {
			t.Errorf("%T tells that its algorithm is the %v, want the %v", b, got, s.Algorithm)
		}
	}
}

// clients returns the backends on the store of s: one or two.
func (s Subject) clients() []window.Backend {
	if s.Second == nil {
		return []window.Backend{s.Backend}
	}
	return []window.Backend{s.Backend, s.Second}
}

func fixed(s Subject) string {
	if s.Algorithm.Rolling() {
		return fmt.Sprintf("for fixed windows, and the algorithm is the %v", s.Algorithm)
	}
	return ""
}

func perKey(s Subject) string {
	if s.Algorithm != window.PerKey {
		return fmt.Sprintf("for per-key fixed windows, and the algorithm is the %v", s.Algorithm)
	}
	return ""
}

func isRolling(s Subject) string {
	if !s.Algorithm.Rolling() {
		return fmt.Sprintf("for rolling algorithms, and the algorithm is the %v", s.Algorithm)
	}
	return ""
}

func bounded(s Subject) string {
	if s.MaxCount == 0 || s.MaxCount == math.MaxUint64 {
		return "for backends with a MaxCount"
	}
	return ""
}

func unbounded(s Subject) string {
	if s.MaxCount != 0 {
		return "for backends without a MaxCount"
	}
	return ""
}

func twoClients(s Subject) string {
	if s.Second == nil {
		return "for backends of which a store can have two"
	}
	return ""
}

// having returns the need of a method that a backend may leave out. If a backend does not have it and
// does not leave it out either, the test fails.
func having(method string) need {
	return func(s Subject) string {
		if why, without := s.Without[method]; without {
			return fmt.Sprintf("without %s: %s", method, why)
		}
		return ""
	}
}
