package backendtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// brokenVariable names the algorithm, and the mistake, of the backend that TestBrokenBackend tests.
const brokenVariable = "BACKENDTEST_BROKEN"

// TestBrokenBackend is run by TestMistakesAreFound in a process of its own. Otherwise it does nothing.
func TestBrokenBackend(t *testing.T) {
	algorithm, name, ok := strings.Cut(os.Getenv(brokenVariable), ": ")
	if !ok {
		return
	}
	var a window.Algorithm
	if err := a.UnmarshalText([]byte(algorithm)); err != nil {
		t.Fatal(err)
	}
	is := func(b broken) bool { return b.name == name }
	Run(t, func(t *testing.T) Subject {
		clock := NewClock()
		store := memory.New(memory.WithClock(clock.Now))
		s := Subject{Backend: store, Clock: clock, Algorithm: a, Close: func() { store.Close() }}
		all := unbounded
		if slices.ContainsFunc(overMost, is) {
			all = overMost
			s.Backend = newWrong(store, clock.Now, bounded)
		}
		m := all[slices.IndexFunc(all, is)].mistake
		s.Backend, s.Second = newWrong(s.Backend, clock.Now, m), newWrong(s.Backend, clock.Now, m)
		return s
	})
}

func TestMistakesAreFound(t *testing.T) {
	if race.Enabled {
		t.Skip("whether the suite finds mistakes does not depend on the race detector")
	}
	seen := map[string][]string{} // by properties, with an algorithm and mistake
	for _, b := range slices.Concat(overMost, unbounded) {
		for _, a := range b.in {
			name := fmt.Sprint(algorithmOf[a], ": ", b.name)
			seen[name] = append(seen[name], b.seen...)
		}
	}
	for name, by := range seen {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustFail(t, name, by)
		})
	}
}

// A call that fails may have been counted, or not. It is no grant, and the test fails with its error only.
func TestErrorsOfTheStoreAreSeenAsThemselves(t *testing.T) {
	if race.Enabled {
		t.Skip("what the suite says does not depend on the race detector")
	}
	line := regexp.MustCompile(`(?m)^ +\w+\.go:\d+: .*`)
	for _, a := range algorithmOf {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestBrokenBackend$/(random|concurrent|order|under)")
		cmd.Env = append(os.Environ(), fmt.Sprint(brokenVariable, "=", a, ": ", flaky))
		output, _ := cmd.CombinedOutput()
		all := line.FindAllString(string(output), -1)
		for _, text := range all {
			if !strings.Contains(text, errFlaky.Error()) && !strings.Contains(text, "seed") {
				t.Errorf("%v: %s", a, text)
			}
		}
		if len(all) < 100 {
			t.Errorf("%v: %d errors are seen:\n%s", a, len(all), output)
		}
	}
}

// TestEveryPropertyIsNeeded fails if the suite has a property without which all mistakes would be found.
func TestEveryPropertyIsNeeded(t *testing.T) {
	for _, p := range properties {
		needs := func(b broken) bool { return slices.Contains(b.seen, p.sentence) }
		if !slices.ContainsFunc(slices.Concat(overMost, unbounded), needs) {
			t.Errorf("no mistake is found by the property that %s", p.sentence)
		}
	}
}

// mustFail fails the test unless subtests of the suite fail with a broken backend. A data race may need several
// attempts.
func mustFail(t *testing.T, name string, subtests []string) {
	var output string
	for range 10 {
		pattern := "^TestBrokenBackend$/^(" + strings.ReplaceAll(strings.Join(subtests, "|"), " ", "_") + ")$"
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", pattern)
		cmd.Env = append(os.Environ(), brokenVariable+"="+name)
		text, _ := cmd.CombinedOutput()
		output = string(text)
		subtests = slices.DeleteFunc(slices.Clone(subtests), func(s string) bool {
			return strings.Contains(output, "--- FAIL: TestBrokenBackend/"+strings.ReplaceAll(s, " ", "_")+" (")
		})
		if len(subtests) == 0 {
			return
		}
	}
	t.Errorf("with a backend of which is true that %s, these subtests pass: %q\n%s", name, subtests, output)
}

// unable is a backend that can't give back.
type unable struct{ window.Backend }

func (unable) GiveBack(context.Context, string, window.Limit, uint64, int64) (bool, error) {
	return false, window.ErrUnsupported
}

// withouts are what Subjects may say of unable.
var withouts = map[string]map[string]string{
	"right":   {"GiveBack": "its store can't subtract"},
	"unnamed": {},
	"wrong":   {"GiveBack": "", "Give": "no such method", "Take": "it has one"},
}

// TestBackendWithoutMethods is run by TestSubjectNamesWhatTheBackendLeavesOut in a process of its own.
func TestBackendWithoutMethods(t *testing.T) {
	without, ok := withouts[os.Getenv(brokenVariable)]
	if !ok {
		return
	}
	RunInBubbles(t, func(t *testing.T) Subject {
		store := memory.New(memory.WithClock(time.Now))
		t.Cleanup(func() { store.Close() })
		return Subject{Backend: unable{store}, Clock: BubbleClock{}, Without: without, Close: func() { store.Close() }}
	})
}

func TestSubjectNamesWhatTheBackendLeavesOut(t *testing.T) {
	for env, wants := range map[string][]string{
		"right": {
			"--- SKIP: TestBackendWithoutMethods/vectors", "without GiveBack: its store can't subtract",
			"--- PASS: TestBackendWithoutMethods/keys_and_limits_are_independent",
		},
		"unnamed": {"GiveBack of backendtest.unable returns error", "does not name it: is it missing, or misspelt?"},
		"wrong":   {"Subject.Without has no reason for GiveBack", `Subject.Without has "Give"`, "has a method Take, although"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestBackendWithoutMethods$/^(a_backend|vectors|keys)")
		cmd.Env = append(os.Environ(), brokenVariable+"="+env)
		output, err := cmd.CombinedOutput()
		for _, want := range wants {
			if (err == nil) != (env == "right") || !strings.Contains(string(output), want) {
				t.Errorf("%s: %v: no %q in\n%s", env, err, want, output)
			}
		}
	}
}

// result is what a step of a vector returns. What is missing is left open by the algorithm.
type result struct {
	step
	Granted bool // of a hit, take or peek; what give_back returns
	Count   *uint64
	Retry   duration  // the RetryAfter of a hit, take or peek that is refused; not of fixed windows
	Left    *duration // of the window; 0 if there is none
}

// Backends are compared with the model, and the model with results that do not come from it.
func TestTheModelAgreesWithVectors(t *testing.T) {
	for _, a := range algorithmOf {
		t.Run(a.String(), func(t *testing.T) {
			clock := NewClock()
			store := memory.New(memory.WithClock(clock.Now))
			defer store.Close()
			s := newSuite(t, Subject{Backend: store, Clock: clock, Algorithm: a})
			var vectors []vector
			var results []struct {
				Why   string
				Steps []result
			}
			s.readVectors(a.String(), &vectors)
			s.readVectors(a.String(), &results)
			for i, v := range vectors {
				for j, got := range s.replay(&v) {
					if want := results[i].Steps[j]; !want.agrees(got, a) {
						t.Errorf("vector %q, step %d: %+v returns %v: %s", v.Name, j+1, want, got, results[i].Why)
					}
				}
			}
		})
	}
}

// agrees compares an answer with the result of a step.
func (want *result) agrees(got answer, a window.Algorithm) bool {
	switch want.Op {
	case "give_back":
		return got.ok == want.Granted
	case "hit", "take", "peek":
		granted := !got.Refused && (want.Op != "hit" || a.Rolling() || got.Count <= want.Limit)
		if granted != want.Granted || a.Rolling() && got.RetryAfter != time.Duration(want.Retry) {
			return false
		}
	}
	return (want.Count == nil || got.Count == *want.Count) && (want.Left == nil || got.Left == time.Duration(*want.Left))
}

// answered is what a claim of a vector returns.
type answered struct {
	flightStep
	Granted               []bool
	Used                  uint64
	Waiting               *uint64  // missing: of no interest
	Next                  duration // up to which places come back; 0: of no interest
	Lost, Forgotten, Late bool
	Why                   string
}

func TestTheLedgerAgreesWithVectors(t *testing.T) {
	clock := NewClock()
	store := memory.New(memory.WithClock(clock.Now))
	defer store.Close()
	s := newSuite(t, Subject{Backend: store, Clock: clock})
	var flights []flightVector
	var results []struct{ Steps []answered }
	s.readVectors("in-flight", &flights)
	s.readVectors("in-flight", &results)
	for i, f := range flights {
		for j, got := range s.replayClaims(&f) {
			want := &results[i].Steps[j]
			same := slices.Equal(grants(got, &window.Claim{Wants: want.Wants}), want.Granted) && got.Used == want.Used &&
				got.Lost == want.Lost && got.Forgotten == want.Forgotten && got.Late == want.Late &&
				(want.Waiting == nil || got.Waiting == *want.Waiting) &&
				(want.Next == 0 || got.Next > 0 && got.Next <= time.Duration(want.Next))
			if !same {
				t.Errorf("vector %q, step %d: %+v returns %+v: %s", f.Name, j+1, want.flightStep, got, want.Why)
			}
		}
	}
}
