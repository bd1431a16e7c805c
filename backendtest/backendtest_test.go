package backendtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// faultVariable names the fault of the backend that TestBroken tests.
const faultVariable = "BACKENDTEST_FAULT"

func start(a window.Algorithm, skips bool, f fault) func(*testing.T) backendtest.Subject {
	return func(*testing.T) backendtest.Subject {
		clock := backendtest.NewClock()
		p := newPlain(clock.Now, a, f)
		p.skips = skips
		return backendtest.Subject{Backend: p, Clock: clock, Algorithm: a, SkipsDenied: skips}
	}
}

func TestRightBackendsPass(t *testing.T) {
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, start(a, false, none))
		})
		t.Run(a.String()+" that skips", func(t *testing.T) {
			backendtest.Run(t, start(a, true, none))
		})
	}
}

func TestBoundedBackendsPass(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Subject {
		s := start(window.PerKey, true, none)(t)
		s.MaxCount, s.Exact = 191, time.Second
		return s
	})
}

// TestBroken is what TestFaultsAreFound runs in a process of its own. By itself it has
// nothing to do.
func TestBroken(t *testing.T) {
	f, skips := strings.CutPrefix(os.Getenv(faultVariable), "skips: ")
	if f != "" {
		backendtest.Run(t, start(window.PerKey, skips, fault(f)))
	}
}

func TestFaultsAreFound(t *testing.T) {
	for _, test := range []struct {
		by     string // the test that is for it; others may find it as well
		faults []fault
	}{
		{"a window ends one scale after it has started", []fault{
			endsLate, endsEarly, endsEarlyInBetween, tellsLateEnd, tellsNoEnd, tellsWrongLeft, slides, ignoresAlgorithm,
			zeroOpensNothing, getOpens, getTellsOver,
		}},
		{"a window tells when it started and was last added to", []fault{tellsWrongStart, tellsWrongUpdate}},
		{"keys and scales are independent", []fault{
			sharesScales, joinsNames, joinsNamesScaleFirst, cutsKeys, foldsKeys, trimsKeys, cleansKeys, forgetsKeys,
		}},
		{"concurrent hits each have a place of their own", []fault{losesHits, givesPlacesTwice}},
		{"of concurrent openings of a window one opens it", []fault{opensTwice}},
		{"concurrent hits are let through up to the limit and no further", []fault{
			losesHits, givesPlacesTwice, losesCountWhenDenied, comparesFirst, skipsAtLimit,
			"skips: " + losesHits, "skips: " + givesPlacesTwice, "skips: " + losesCountWhenDenied,
		}},
		{"increments and limits of one key can differ", []fault{
			losesHits, givesPlacesTwice, comparesFirst, skipsAtLimit,
			"skips: " + givesPlacesTwice,
		}},
		{"counts do not wrap around", []fault{wraps}},
		{"Set replaces the window", []fault{setKeepsEnd, setAdds, setNeedsWindow, setToZeroDeletes}},
		{"Reset and Delete end windows", []fault{
			resetDoesNothing, resetEndsAllScales, resetClearsOnly, deleteTellsNothing, deleteCountsOver, deleteIgnoresScales,
			deleteNeedsScales, deleteByPrefix,
		}},
		{"a call whose context has ended is not made", []fault{ignoresContext, looksAtContextTooLate, hidesContext}},
		{"random calls agree with a model", []fault{
			endsLate, endsEarlyInBetween, slides, sharesScales, comparesFirst, losesCountWhenDenied, zeroOpensNothing, incStopsAtTen,
			getOpens, setKeepsEnd, setAdds, resetDoesNothing, deleteCountsOver, deleteIgnoresScales, deleteNeedsScales,
			"skips: " + losesCountWhenDenied, "skips: " + skipsAtLimit, "skips: " + incStopsAtTen,
		}},
		{"vectors", []fault{endsLate, endsEarly, slides, comparesFirst, skipsAtLimit, setKeepsEnd, setAdds}},
	} {
		for _, f := range test.faults {
			t.Run(string(f)+"/"+test.by, func(t *testing.T) { mustFail(t, test.by, f) })
		}
	}
}

// mustFail fails the test if one of the suite's does not, for a backend with a fault. What
// goes wrong only where goroutines meet need not do so at the first try.
func mustFail(t *testing.T, test string, f fault) {
	t.Parallel()
	name := "TestBroken/" + strings.ReplaceAll(test, " ", "_")
	var output []byte
	var err error
	for try := 0; try < 5 && err == nil; try++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
		cmd.Env = append(os.Environ(), faultVariable+"="+string(f))
		output, err = cmd.CombinedOutput()
	}
	if err == nil {
		t.Errorf("the suite does not find it:\n%s", output)
	} else if !strings.Contains(string(output), "--- FAIL: "+name) {
		t.Errorf("%v:\n%s", err, output)
	}
}

// Have the suite test a backend of your own.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMyBackend
		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
			clock := backendtest.NewClock()
			return backendtest.Subject{
				Backend: newPlain(clock.Now, window.PerKey, none),
				Clock:   clock,
			}
		})
	}
}

func TestClockMovesWhenTold(t *testing.T) {
	clock := backendtest.NewClock()
	if now := clock.Now(); !now.Equal(time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("it is %v", now)
	}
	was := clock.Now()
	clock.Advance(time.Minute)
	if passed := clock.Now().Sub(was); passed != time.Minute {
		t.Errorf("%v have passed", passed)
	}
}
