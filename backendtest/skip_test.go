package backendtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/window"
)

// untaking is a backend without takes.
type untaking struct{ window.Backend }

// TestBackendWithoutTakes is run by TestSubjectNamesWhatTheBackendLeavesOut in a process of its own.
func TestBackendWithoutTakes(t *testing.T) {
	without := map[string]string{"Peek": "for the test", "Check": "for the test", "Algorithm": "for the test"}
	switch os.Getenv(faultVariable) {
	case "named":
		without["Take"] = "its store can't subtract"
	case "unnamed":
	case "wrong":
		without["Take"], without["Give"] = "", "no such method"
	default:
		return
	}
	run := backendtest.Run
	if os.Getenv("BACKENDTEST_BUBBLES") != "" {
		run = backendtest.RunInBubbles
	}
	run(t, func(*testing.T) backendtest.Subject {
		clock := backendtest.Clock(backendtest.BubbleClock{})
		if os.Getenv("BACKENDTEST_BUBBLES") == "" {
			clock = backendtest.NewClock()
		}
		p := newPlain(clock.Now, window.PerKey, none)
		return backendtest.Subject{Backend: untaking{p}, Clock: clock, Without: without, Close: func() { p.Close() }}
	})
}

// runWithoutTakes runs TestBackendWithoutTakes, or a subtest of it, in a process of its own.
func runWithoutTakes(t *testing.T, env ...string) (output string, err error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestBackendWithoutTakes$/^(a_backend|a_take|rolling:_a_take|random)")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestSubjectNamesWhatTheBackendLeavesOut(t *testing.T) {
	for _, env := range [][]string{{faultVariable + "=named"}, {faultVariable + "=named", "BACKENDTEST_BUBBLES=1"}} {
		output, err := runWithoutTakes(t, env...)
		for _, want := range []string{
			"--- SKIP: TestBackendWithoutTakes/a_take_that_is_refused_changes_nothing", "without Take: its store can't subtract",
			"--- SKIP: TestBackendWithoutTakes/rolling:_a_take_is_a_hit", "for rolling algorithms, and the algorithm is the per-key fixed window",
			"--- SKIP: TestBackendWithoutTakes/random_takes_agree", "--- PASS: TestBackendWithoutTakes/random_calls_agree_with_a_model",
		} {
			if err != nil || !strings.Contains(output, want) {
				t.Errorf("%v: no %q in\n%s", err, want, output)
			}
		}
	}
	for env, wants := range map[string][]string{
		"unnamed": {"has no method Take, which Subject.Without does not name", "--- FAIL: TestBackendWithoutTakes/a_take_that_is_refused"},
		"wrong":   {"Subject.Without has no reason for Take", `Subject.Without has "Give"`},
	} {
		output, err := runWithoutTakes(t, faultVariable+"="+env)
		for _, want := range wants {
			if err == nil || !strings.Contains(output, want) {
				t.Errorf("%v: no %q in\n%s", err, want, output)
			}
		}
	}
}
