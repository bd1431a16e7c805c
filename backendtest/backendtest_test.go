package backendtest_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// faultVariable names the fault of the backend that TestBrokenBackendOfAnotherProcess tests.
const faultVariable = "BACKENDTEST_FAULT"

// start returns a function that makes a backend with a fault.
func start(a window.Algorithm, skips bool, f fault) func(*testing.T) backendtest.Subject {
	return func(*testing.T) backendtest.Subject {
		clock := backendtest.NewClock()
		p := newPlain(clock.Now, a, f)
		p.skips = skips
		if slices.Contains(rangeFaults, f) {
			p.maxCount = 1 << 40
		}
		return backendtest.Subject{
			Backend: clientOf(p, f), Second: clientOf(p, f), Without: withoutPeek, Clock: clock, Algorithm: a, SkipsDenied: skips, MaxCount: p.maxCount,
			Close: func() { p.Close() },
		}
	}
}

var withoutPeek = map[string]string{"Peek": "Get tells as much", "Check": "it has no bounds"}

func TestCorrectBackendsPass(t *testing.T) {
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, start(a, false, none))
		})
		t.Run(a.String()+" that skips denied hits", func(t *testing.T) {
			backendtest.Run(t, start(a, true, none))
		})
	}
}

func TestBoundedBackendsPass(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		clock := backendtest.NewClock()
		p := newPlain(clock.Now, window.PerKey, none)
		p.skips, p.maxCount = true, 191
		return backendtest.Subject{Backend: p, Clock: clock, Without: withoutPeek, SkipsDenied: true, MaxCount: 191, Exact: time.Second, Close: func() { p.Close() }}
	})
}

// TestBrokenBackendOfAnotherProcess is run by TestFaultsAreFound in a process of its own. Otherwise it does nothing.
func TestBrokenBackendOfAnotherProcess(t *testing.T) {
	f, skips := strings.CutPrefix(os.Getenv(faultVariable), "skips: ")
	if f != "" {
		backendtest.Run(t, start(window.PerKey, skips, fault(f)))
	}
}

func TestFaultsAreFound(t *testing.T) {
	for _, test := range []struct {
		subtest string // that must find the faults; others may find them too
		faults  []fault
	}{
		{"a window ends one scale after its start", []fault{
			endsLate, endsEarly, endsEarlySilently, returnsLateEnd, returnsNoEnd, returnsWrongLeft, slides, ignoresAlgorithm,
			zeroOpensNothing, getOpens, getReturnsOver,
		}},
		{"a window has a start and the time of its last hit", []fault{returnsWrongStart, returnsWrongUpdate}},
		{"keys and scales are independent", []fault{
			sharesScales, joinsNames, joinsNamesScaleFirst, cutsKeys, foldsKeys, trimsKeys, repairsKeys, forgetsKeys,
		}},
		{"concurrent hits return distinct counts", []fault{losesHits, repeatsCounts}},
		{"concurrent first hits open one window", []fault{opensTwice}},
		{"concurrent hits are allowed up to the limit", []fault{
			losesHits, repeatsCounts, losesCountWhenDenied, comparesFirst, skipsAtLimit,
			"skips: " + losesHits, "skips: " + repeatsCounts, "skips: " + losesCountWhenDenied,
		}},
		{"increments and limits of one key can differ", []fault{
			losesHits, repeatsCounts, comparesFirst, skipsAtLimit,
			"skips: " + repeatsCounts,
		}},
		{"counts do not wrap around", []fault{wraps}},
		{"Set replaces the window", []fault{setKeepsEnd, setAdds, setNeedsWindow, setToZeroDeletes}},
		{"Reset and Delete end windows", []fault{
			resetDoesNothing, resetEndsAllScales, resetClearsOnly, deleteReturnsZero, deleteCountsOver, deleteIgnoresScales,
			deleteNeedsScales, deleteByPrefix,
		}},
		{"a call whose context has ended does nothing", []fault{ignoresContext, checksContextTooLate, hidesContextError}},
		{"a scale under 1 ms is refused with window.ErrScale", []fault{acceptsShortScales, hidesErrScale, deletesShortScales}},
		{"a number over MaxCount is refused with window.ErrRange", []fault{acceptsTooMuch, acceptsHighLimits, hidesErrRange}},
		{"a call after Close fails with window.ErrClosed", []fault{worksAfterClose, getsAfterClose, hidesErrClosed}},
		{"random calls agree with a model", []fault{
			endsLate, endsEarlySilently, slides, sharesScales, comparesFirst, losesCountWhenDenied, zeroOpensNothing, incStopsAtTen,
			getOpens, setKeepsEnd, setAdds, resetDoesNothing, deleteCountsOver, deleteIgnoresScales, deleteNeedsScales,
			"skips: " + losesCountWhenDenied, "skips: " + skipsAtLimit, "skips: " + incStopsAtTen,
		}},
		{"a take that is refused changes nothing", []fault{refusalCounts, refusalCountsPart, refusalOpens, takesTooMuch, refusesLast}},
		{"a take of 0 counts nothing", []fault{takeOfNoneOpens, takeOfNoneRefused}},
		{"takes of several windows are granted all or none", []fault{keepsFirst, opensFirst, refusalCounts}},
		{"several takes of one window count as their sum", []fault{checksEach}},
		{"what is given back can be taken again", []fault{givesNothingBack, givesBackTwice, endsEmpty, deniesGivingBack}},
		{"nothing is given back to another window", []fault{givesBackToAny, repeatsIDs}},
		{"the ID of a window is that of no other", []fault{repeatsIDs, forgetsIDs, changesIDs}},
		{"concurrent takes are granted up to the limit", []fault{takesSlowly, refusesLast, refusalCounts}},
		{"concurrent takes and give-backs leave what is held", []fault{givesBackSlowly, givesBackTwice, givesNothingBack, refusalCounts}},
		{"concurrent takes of several windows leave what is granted", []fault{keepsFirst, takesSlowly, refusalCounts}},
		{"of takes in opposite order one is granted", []fault{takesOneByOne, takesSlowly}},
		{"takes that end windows and others overlap exceed no limit", []fault{givesBackToAny, takesTooMuch}},
		{"a number over MaxCount is refused by takes with window.ErrRange", []fault{acceptsHighTakes, hidesErrRange}},
		{"random takes agree with a model", []fault{
			refusalCounts, refusalOpens, takesTooMuch, refusesLast, takeOfNoneOpens, takeOfNoneRefused, keepsFirst, opensFirst,
			checksEach, givesNothingBack, givesBackTwice, givesBackToAny, endsEmpty, deniesGivingBack,
		}},
		{"random calls of two clients agree with a model", []fault{losesOfTwo, remembersFull}},
		{"calls of two clients at once leave what is held", []fault{givesBackTwice}},
		{"vectors", []fault{endsLate, endsEarly, slides, comparesFirst, skipsAtLimit, setKeepsEnd, setAdds}},
	} {
		for _, f := range test.faults {
			t.Run(string(f)+"/"+test.subtest, func(t *testing.T) { mustFail(t, "TestBrokenBackendOfAnotherProcess", test.subtest, string(f)) })
		}
	}
}

// rangeFaults are faults of a backend that has a bound.
var rangeFaults = []fault{acceptsTooMuch, acceptsHighLimits, hidesErrRange, acceptsHighTakes}

// mustFail fails the test if a subtest of the suite passes for a backend with a fault, which the given
// test makes. A data race may need several attempts.
func mustFail(t *testing.T, in, subtest, f string) {
	t.Parallel()
	name := in + "/" + strings.ReplaceAll(subtest, " ", "_")
	var output []byte
	var err error
	for attempt := 0; attempt < 5 && err == nil; attempt++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
		cmd.Env = append(os.Environ(), faultVariable+"="+f)
		output, err = cmd.CombinedOutput()
	}
	if err == nil {
		t.Errorf("the suite passes:\n%s", output)
	} else if !strings.Contains(string(output), "--- FAIL: "+name) {
		t.Errorf("%v:\n%s", err, output)
	}
}

// Run tests a backend of your own.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMyBackend
		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
			clock := backendtest.NewClock()
			return backendtest.Subject{
				Backend: newPlain(clock.Now, window.PerKey, none),
				Clock:   clock,
				Without: map[string]string{"Peek": "Get tells as much", "Check": "it has no bounds"},
			}
		})
	}
}

func TestClockAdvancesOnlyWhenAdvanced(t *testing.T) {
	clock := backendtest.NewClock()
	if now := clock.Now(); !now.Equal(time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the time is %v", now)
	}
	was := clock.Now()
	clock.Advance(time.Minute)
	if passed := clock.Now().Sub(was); passed != time.Minute {
		t.Errorf("%v have passed", passed)
	}
}
