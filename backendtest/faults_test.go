package backendtest_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/window"
)

// fault is a mistake in a backend.
type fault string

// Faults of all algorithms.
const (
	none                   fault = ""
	sharesScales           fault = "the scales of a key share a window"
	sharesNames            fault = "the names of limits share a window"
	sharesAlgorithms       fault = "fixed and aligned windows share a window"
	joinsNames             fault = "name and key are concatenated"
	joinsNamesColon        fault = "key and name are concatenated, with a colon"
	joinsScales            fault = "key and scale are concatenated"
	joinsScalesFirst       fault = "scale and key are concatenated"
	cutsKeys               fault = "keys are cut at 255 bytes"
	foldsKeys              fault = "keys are folded to lower case"
	trimsKeys              fault = "keys are trimmed"
	repairsKeys            fault = "keys are made valid UTF-8"
	ignoresContext         fault = "the context is ignored"
	checksContextTooLate   fault = "the context is checked after the call"
	hidesContextError      fault = "the error does not match that of the context"
	acceptsShortScales     fault = "positive scales under 1 ms are accepted"
	acceptsAlgorithms      fault = "unknown algorithms are accepted"
	hidesErrScale          fault = "the error of a scale does not match window.ErrScale"
	deletesShortScales     fault = "Delete accepts scales under 1 ms"
	acceptsTooMuch         fault = "limits over MaxCount are accepted"
	acceptsHighLimits      fault = "limits of hits over MaxCount are accepted"
	acceptsHighTakes       fault = "limits of takes over MaxCount are accepted"
	checksNoBound          fault = "Check knows no largest Max"
	setsTooMuch            fault = "Set accepts counts over MaxCount"
	hidesErrRange          fault = "the error of a number does not match window.ErrRange"
	worksAfterClose        fault = "calls after Close succeed"
	getsAfterClose         fault = "Peek after Close succeeds"
	hidesErrClosed         fault = "the error after Close does not match window.ErrClosed"
	leavesOut              fault = "TakeAll is that of Unimplemented"
	refusesCharges         fault = "Charge fails with window.ErrRange beyond the largest count"
	chargesWhatFits        fault = "Charge counts only what fits"
	peekTakes              fault = "Peek takes"
	peekForgetsRetry       fault = "Peek returns no RetryAfter"
	resetDoesNothing       fault = "Reset does nothing"
	resetEndsAllScales     fault = "Reset ends the windows of all scales"
	resetEndsAllNames      fault = "Reset ends the windows of all names"
	resetEndsAllAlgorithms fault = "Reset ends the windows of all algorithms"
	deleteReturnsZero      fault = "Delete always returns 0"
	deleteIgnoresScales    fault = "Delete ends the windows of all scales, whatever the scales"
	deleteNeedsScales      fault = "Delete without scales does nothing"
	deleteByPrefix         fault = "Delete ends the windows of keys with the same prefix"
	deleteKeepsNames       fault = "Delete ends only windows without a name"
	deleteKeepsAlgorithms  fault = "Delete ends only fixed windows"
	setAdds                fault = "Set adds to the count"
	takesSlowly            fault = "takes are counted between reading and adding"
	takesTooMuch           fault = "a take is granted if the limit is not reached"
	refusesLast            fault = "a take up to the limit is refused"
	grantsOneMore          fault = "one more than the limit is granted"
	refusalCounts          fault = "a take that is refused counts"
	forgetsRefused         fault = "Refused is not set"
	forgetsNever           fault = "RetryAfter of a take over the limit is Left"
	keepsFirst             fault = "several takes up to the refused one count"
	checksEach             fault = "several takes of one window are checked one by one"
	sumsUnderOwn           fault = "the sum of several takes is checked under the limit of each"
	takesOneByOne          fault = "several takes are made one by one, and given back if one is refused"
	givesNothingBack       fault = "GiveBack gives nothing back"
	givesBackTwice         fault = "GiveBack gives back twice"
	givesBackToAny         fault = "GiveBack ignores the ID"
	givesBackSlowly        fault = "GiveBack subtracts between reading and writing"
	deniesGivingBack       fault = "GiveBack returns false"
	wraps                  fault = "counts wrap around"
	returnsLateEnd         fault = "ExpiresAt is late"
)

// Faults of fixed windows.
const (
	losesHits            fault = "one hit in 1000 is not counted"
	repeatsCounts        fault = "hits are counted between reading and adding"
	opensTwice           fault = "windows are opened between reading and opening"
	endsLate             fault = "a window is active at its end"
	endsEarly            fault = "a window ends a millisecond early"
	endsEarlySilently    fault = "a window ends a millisecond before its ExpiresAt"
	returnsNoEnd         fault = "ExpiresAt is zero"
	returnsWrongLeft     fault = "Left is always a scale"
	slides               fault = "a hit moves the end of the window"
	ignoresAlgorithm     fault = "windows are those of the other algorithm"
	forgetsKeys          fault = "with more than 20 windows, one is lost"
	comparesFirst        fault = "a hit that would be denied is not counted"
	skipsAtLimit         fault = "a hit on a full window is not counted"
	losesCountWhenDenied fault = "a hit on a window over its limit clears the count"
	zeroOpensNothing     fault = "a hit of 0 opens no window"
	peekOpens            fault = "Peek opens a window"
	peeksPast            fault = "Peek returns a window that is over"
	setKeepsEnd          fault = "Set keeps the end of the window"
	setNeedsWindow       fault = "Set opens no window"
	setToZeroDeletes     fault = "Set to 0 ends the window"
	resetClearsOnly      fault = "Reset clears the count and keeps the end"
	deleteCountsOver     fault = "Delete counts windows that are over"
	refusalCountsPart    fault = "a take that is refused counts what is left"
	refusalOpens         fault = "a take that is refused opens a window"
	opensFirst           fault = "several takes open the windows before the refused one"
	endsEmpty            fault = "a window of which all is given back ends"
	repeatsIDs           fault = "the ID is the end"
	changesIDs           fault = "a hit changes the ID"
)

// Faults of rolling algorithms.
const (
	refusalForgets   fault = "a hit that is refused forgets what was counted"
	retriesEarly     fault = "RetryAfter is a nanosecond short"
	retriesLate      fault = "RetryAfter is a millisecond long"
	retriesAtEnd     fault = "RetryAfter is Left"
	retriesOfOne     fault = "RetryAfter is that of a hit of 1"
	retriesNow       fault = "RetryAfter of a hit of 0 is 0"
	forgetsRetry     fault = "RetryAfter is 0"
	grantsEarly      fault = "hits are granted a nanosecond early"
	roundsCountsDown fault = "counts are rounded down"
	isFixed          fault = "the limit is that of aligned windows"
	driftsAway       fault = "times are rounded down to a millisecond"
	keepsEverything  fault = "nothing comes back before a scale without hits"
	wrapsSums        fault = "the sum of count and n wraps around"
	setToZeroKeeps   fault = "Set to 0 does nothing"
	zeroCounts       fault = "a hit of 0 counts"
	owesMore         fault = "a bucket owes more than its burst"
	ignoresBurst     fault = "a bucket holds Max, whatever Burst is"
	backAll          fault = "GiveBack gives back what has come back by itself"
	backForgets      fault = "GiveBack forgets what others have given back"
	wholeNanoseconds fault = "a token takes a whole number of nanoseconds"
	overfills        fault = "a bucket holds more tokens after a long time"
	sameTime         fault = "with another limit, the time until the bucket is full stays"
	newLimitForgets  fault = "with another limit, nothing is counted"
	roundsWeights    fault = "counts are floating-point numbers"
	weighsOlder      fault = "hits of two windows before count like those of the one before"
	alignsElsewhere  fault = "windows begin at multiples of the scale since some minute"
	savesTime        fault = "hits less than a microsecond apart are at the same time"
)

// Faults of calendar windows.
const (
	sharesUnits      fault = "the days, weeks, months and years of a key share a window"
	sharesZones      fault = "the zones of a key share a window"
	sharesStartDays  fault = "the start days of a key share a window"
	tellsUTCApart    fault = "UTC has two counts, by how it is written"
	ignoresZones     fault = "windows are those of UTC"
	ignoresStartDays fault = "windows start on the first day"
	addsLengths      fault = "a day has 24 hours, a month 30 days"
	endsADayFromNow  fault = "a window of a day opens with a hit and lasts a day"
)

// boundFaults are faults of a backend that has a bound.
var boundFaults = []fault{acceptsTooMuch, acceptsHighLimits, acceptsHighTakes, checksNoBound, setsTooMuch, hidesErrRange, refusesCharges}

type algorithms []window.Algorithm

var (
	perKey     = algorithms{window.FixedWindow}
	bucket     = algorithms{window.TokenBucket}
	sliding    = algorithms{window.SlidingWindow}
	slidingLog = algorithms{window.SlidingLog}
	logs       = algorithms{window.SlidingWindow, window.SlidingLog}
	rolling    = algorithms{window.TokenBucket, window.SlidingWindow, window.SlidingLog}
	anyKind    = algorithms{window.FixedWindow, window.TokenBucket}
)

// found has the faults that subtests must find. Others may find them, too.
var found = []struct {
	subtest string
	algorithms
	faults []fault
}{
	{"a backend has all methods but those that it leaves out", anyKind, []fault{leavesOut}},
	{"Check returns the error of every call", anyKind, []fault{
		acceptsShortScales, acceptsAlgorithms, hidesErrScale, deletesShortScales, acceptsTooMuch, acceptsHighTakes, checksNoBound, hidesErrRange,
	}},
	{"Check returns the error of every call", perKey, []fault{acceptsHighLimits}},
	{"a call whose context has ended does nothing", anyKind, []fault{ignoresContext, checksContextTooLate, hidesContextError}},
	{"a call after Close fails with window.ErrClosed", anyKind, []fault{worksAfterClose, getsAfterClose, hidesErrClosed}},
	{"keys, names, scales and algorithms are independent", anyKind, []fault{
		sharesScales, sharesNames, sharesAlgorithms, joinsNames, joinsNamesColon, joinsScales, joinsScalesFirst, cutsKeys, foldsKeys, trimsKeys, repairsKeys,
	}},
	{"keys, names, scales and algorithms are independent", perKey, []fault{forgetsKeys}},
	{"Reset ends a window, and Delete those of all names and algorithms", anyKind, []fault{
		resetDoesNothing, resetEndsAllScales, resetEndsAllNames, resetEndsAllAlgorithms, deleteReturnsZero, deleteIgnoresScales, deleteNeedsScales,
		deleteByPrefix, deleteKeepsNames, deleteKeepsAlgorithms,
	}},
	{"Reset ends a window, and Delete those of all names and algorithms", perKey, []fault{resetClearsOnly, deleteCountsOver}},
	{"Charge counts what is over the limit", anyKind, []fault{refusesCharges, chargesWhatFits}},
	{"Charge counts what is over the limit", perKey, []fault{setsTooMuch, wraps}},
	{"Charge counts what is over the limit", bucket, []fault{owesMore}},
	{"Peek tells what a take would return", anyKind, []fault{peekTakes, forgetsNever}},
	{"Peek tells what a take would return", rolling, []fault{peekForgetsRetry}},
	{"Peek tells what a take would return", perKey, []fault{peekOpens}},
	{"concurrent calls of all methods leave nothing behind", rolling, []fault{sharesScales}},
	{"takes of several limits are granted all or none", anyKind, []fault{keepsFirst, refusalCounts, forgetsRefused, forgetsNever, sharesNames, sharesAlgorithms}},
	{"takes of several limits are granted all or none", perKey, []fault{opensFirst}},
	{"several takes of one count are one of their sum", anyKind, []fault{checksEach, sumsUnderOwn}},
	{"several takes of one count are one of their sum", bucket, []fault{ignoresBurst}},
	{"concurrent takes and hits are granted up to the limit", anyKind, []fault{takesSlowly, refusesLast, refusalCounts}},
	{"concurrent takes and hits are granted up to the limit", rolling, []fault{grantsOneMore}},
	{"concurrent takes and give-backs leave what is held", algorithms{window.FixedWindow, window.SlidingWindow, window.SlidingLog}, []fault{
		givesBackSlowly, givesBackTwice, givesNothingBack, refusalCounts,
	}},
	{"concurrent takes and give-backs leave what is held", bucket, []fault{givesBackTwice}},
	{"of takes in opposite order one is granted", algorithms{window.FixedWindow, window.TokenBucket, window.SlidingLog}, []fault{takesOneByOne}},
	{"of takes in opposite order one is granted", perKey, []fault{takesSlowly}},
	{"calls of two clients at once leave what is held", algorithms{window.FixedWindow, window.SlidingWindow, window.SlidingLog}, []fault{givesBackTwice}},
	{"calls of two clients at once leave what is held", logs, []fault{remembersFull}},

	{"a window ends one scale after its start", perKey, []fault{
		endsLate, endsEarly, endsEarlySilently, returnsLateEnd, returnsNoEnd, returnsWrongLeft, slides, ignoresAlgorithm, zeroOpensNothing, peekOpens, peeksPast,
	}},
	{"concurrent first hits open one window", perKey, []fault{opensTwice}},
	{"concurrent hits are allowed up to the limit", perKey, []fault{
		losesHits, repeatsCounts, losesCountWhenDenied, comparesFirst, skipsAtLimit, "skips: " + losesHits, "skips: " + repeatsCounts, "skips: " + losesCountWhenDenied,
	}},
	{"vectors", perKey, []fault{endsLate, endsEarly, slides, comparesFirst, skipsAtLimit, setKeepsEnd, setAdds}},
	{"random calls agree with a model", perKey, []fault{
		endsLate, endsEarlySilently, slides, sharesScales, sharesNames, comparesFirst, losesCountWhenDenied, zeroOpensNothing, peekOpens, setKeepsEnd, setAdds,
		setNeedsWindow, setToZeroDeletes, refusalCountsPart,
		resetDoesNothing, deleteIgnoresScales, deleteNeedsScales, deleteKeepsNames, "skips: " + losesCountWhenDenied,
		refusalCounts, refusalOpens, takesTooMuch, refusesLast, keepsFirst, opensFirst, checksEach, givesNothingBack, givesBackTwice,
		givesBackToAny, endsEmpty, deniesGivingBack,
	}},
	{"random calls of two clients agree with a model", perKey, []fault{losesOfTwo, remembersFull}},
	{"nothing is given back to another window", perKey, []fault{givesBackToAny}},
	{"nothing is given back to another window", rolling, []fault{givesBackToAny}},
	{"the ID of a window is that of no other", perKey, []fault{repeatsIDs, changesIDs}},
	{"concurrent takes of several windows leave what is granted", perKey, []fault{keepsFirst, takesSlowly, refusalCounts}},
	{"takes that end windows and others overlap exceed no limit", perKey, []fault{givesBackToAny, takesTooMuch}},

	{"calendar: vectors", perKey, []fault{ignoresZones, ignoresStartDays, addsLengths, endsADayFromNow, endsEarly, returnsLateEnd}},
	{"calendar: a window ends where the next one starts", perKey, []fault{ignoresZones, addsLengths, endsLate, endsEarly, endsEarlySilently, slides}},
	{"calendar: all calls are of one window", perKey, []fault{
		ignoresStartDays, endsADayFromNow, givesBackToAny, resetDoesNothing, setAdds, peekTakes, givesNothingBack,
	}},
	{"calendar: windows that end under concurrent takes exceed no limit", perKey, []fault{
		takesTooMuch, takesSlowly, givesBackToAny, givesBackTwice, addsLengths, endsLate,
	}},
	{"calendar: names, units, zones and start days are independent", perKey, []fault{
		sharesUnits, sharesZones, sharesStartDays, sharesNames, tellsUTCApart, deleteIgnoresScales, deleteReturnsZero, resetEndsAllNames,
	}},
	{"calendar: takes of other algorithms, too, are granted all or none", perKey, []fault{keepsFirst, checksEach, sharesUnits, tellsUTCApart}},

	{"rolling: vectors", rolling, []fault{
		refusalCounts, retriesEarly, retriesLate, retriesAtEnd, retriesOfOne, forgetsRetry, forgetsRefused, grantsOneMore, refusesLast, returnsLateEnd,
		setAdds, setToZeroKeeps, resetDoesNothing, chargesWhatFits, zeroCounts, givesNothingBack, givesBackTwice, deniesGivingBack, grantsEarly, sharesScales,
		newLimitForgets, forgetsNever, retriesNow, peekTakes, peekForgetsRetry,
	}},
	{"rolling: vectors", algorithms{window.TokenBucket, window.SlidingWindow}, []fault{wraps, wrapsSums}},
	{"rolling: vectors", bucket, []fault{
		driftsAway, roundsCountsDown, backAll, wholeNanoseconds, overfills, sameTime, ignoresBurst, owesMore,
	}},
	{"rolling: vectors", sliding, []fault{roundsCountsDown, keepsEverything, isFixed, weighsOlder, alignsElsewhere, roundsWeights}},
	{"rolling: vectors", slidingLog, []fault{isFixed, savesTime, givesBackToAny}},
	{"rolling: a caller who waits RetryAfter is admitted", rolling, []fault{retriesEarly, retriesLate, retriesOfOne, grantsEarly}},
	{"rolling: a caller who waits RetryAfter is admitted", bucket, []fault{retriesAtEnd}},
	{"rolling: the limit holds in every interval", rolling, []fault{grantsOneMore}},
	{"rolling: the limit holds in every interval", bucket, []fault{driftsAway}},
	{"rolling: the limit holds in every interval", logs, []fault{isFixed}},
	{"rolling: numbers can be large", rolling, []fault{wrapsSums}},
	{"random calls agree with a model", rolling, []fault{
		refusalCounts, refusalForgets, grantsOneMore, refusesLast, returnsLateEnd, setAdds, resetDoesNothing, chargesWhatFits, takesTooMuch, givesBackTwice, forgetsNever,
	}},
	{"random calls agree with a model", bucket, []fault{roundsCountsDown, owesMore}},
	{"random calls agree with a model", sliding, []fault{roundsCountsDown, isFixed}},
	{"random calls agree with a model", slidingLog, []fault{isFixed}},
	{"rolling: what has come back by itself is not given back", bucket, []fault{backAll, givesBackTwice}},
	{"rolling: a second give-back gives nothing back that has come back by itself", bucket, []fault{backForgets, backAll}},
	{"random calls of two clients agree with a model", rolling, []fault{remembersFull}},
	{"random calls of two clients agree with a model", slidingLog, []fault{losesOfTwo}},
}

// faultVariable names the algorithm and fault of the backend that TestBrokenBackendOfAnotherProcess tests.
const faultVariable = "BACKENDTEST_FAULT"

// TestBrokenBackendOfAnotherProcess is run by TestFaultsAreFound in a process of its own. Otherwise it
// does nothing.
func TestBrokenBackendOfAnotherProcess(t *testing.T) {
	for a := window.FixedWindow; a <= limits.LastAlgorithm; a++ {
		if f, ok := strings.CutPrefix(os.Getenv(faultVariable), a.String()+": "); ok {
			f, skips := strings.CutPrefix(f, "skips: ")
			backendtest.Run(t, start(a, skips, fault(f)))
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	if race.Enabled {
		t.Skip("whether the suite finds faults does not depend on the race detector")
	}
	for _, test := range found {
		for _, a := range test.algorithms {
			for _, f := range test.faults {
				f := a.String() + ": " + string(f)
				t.Run(f+"/"+test.subtest, func(t *testing.T) { mustFail(t, test.subtest, f) })
			}
		}
	}
}

// mustFail fails the test if a subtest of the suite passes for a backend with a fault. A data race may
// need several attempts.
func mustFail(t *testing.T, subtest, f string) {
	t.Parallel()
	name := "TestBrokenBackendOfAnotherProcess/" + strings.ReplaceAll(subtest, " ", "_")
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

// start returns a function that makes a backend with a fault.
func start(a window.Algorithm, skips bool, f fault) func(*testing.T) backendtest.Subject {
	return func(*testing.T) backendtest.Subject {
		clock := backendtest.NewClock()
		p := newPlain(clock.Now, f)
		p.skips = skips
		if slices.Contains(boundFaults, f) {
			p.maxCount = 1 << 40
		}
		return backendtest.Subject{
			Backend: clientOf(p, f), Second: clientOf(p, f), Clock: clock, Algorithm: a, SkipsDenied: skips, MaxCount: p.maxCount,
			Close: func() { p.Close() },
		}
	}
}
