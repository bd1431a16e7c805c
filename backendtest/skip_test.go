package backendtest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

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
