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
