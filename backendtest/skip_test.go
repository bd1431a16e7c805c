package backendtest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// unable is a backend that can't give back.
type unable struct{ window.Backend }

func (unable) GiveBack(context.Context, string, window.Limit, uint64, int64) (bool, error) {
	return false, window.ErrUnsupported
}

// misspelt is a backend whose Hit has another name.
type misspelt struct {
	window.Unimplemented
	right window.Backend
}

func (m misspelt) Check(l window.Limit) (window.Traits, error) { return m.right.Check(l) }

func (m misspelt) Hits(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	return m.right.Hit(ctx, key, l, n)
}

// TestBackendWithoutMethods is run by TestSubjectNamesWhatTheBackendLeavesOut in a process of its own.
func TestBackendWithoutMethods(t *testing.T) {
	without := map[string]string{"GiveBack": "its store can't subtract"}
	backend := func(right window.Backend) window.Backend { return unable{right} }
	switch os.Getenv(brokenVariable) {
	case "named":
	case "unnamed":
		without = nil
	case "wrong":
		without = map[string]string{"GiveBack": "", "Give": "no such method", "Take": "it has one"}
	case "misspelt":
		backend = func(right window.Backend) window.Backend { return misspelt{right: right} }
	default:
		return
	}
	run := Run
	if os.Getenv("BACKENDTEST_BUBBLES") != "" {
		run = RunInBubbles
	}
	run(t, func(t *testing.T) Subject {
		clock := Clock(BubbleClock{})
		if os.Getenv("BACKENDTEST_BUBBLES") == "" {
			clock = NewClock()
		}
		store := memory.New(memory.WithClock(clock.Now))
		t.Cleanup(func() { store.Close() })
		return Subject{Backend: backend(store), Clock: clock, Without: without, Close: func() { store.Close() }}
	})
}

func TestSubjectNamesWhatTheBackendLeavesOut(t *testing.T) {
	for _, test := range []struct {
		env   string
		pass  bool
		wants []string
	}{
		{"named", true, []string{
			"--- SKIP: TestBackendWithoutMethods/vectors", "without GiveBack: its store can't subtract",
			"--- PASS: TestBackendWithoutMethods/keys_and_limits_are_independent",
		}},
		{"unnamed", false, []string{"GiveBack of backendtest.unable returns error", "Subject.Without does not name it"}},
		{"wrong", false, []string{"Subject.Without has no reason for GiveBack", `Subject.Without has "Give"`, "has a method Take, although"}},
		{"misspelt", false, []string{"Hit of backendtest.misspelt returns error", "is it missing, or misspelt?"}},
	} {
		for _, bubbles := range []string{"", "1"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestBackendWithoutMethods$/^(a_backend|vectors|keys)")
			cmd.Env = append(os.Environ(), brokenVariable+"="+test.env, "BACKENDTEST_BUBBLES="+bubbles)
			output, err := cmd.CombinedOutput()
			for _, want := range test.wants {
				if (err == nil) != test.pass || !strings.Contains(string(output), want) {
					t.Errorf("%s: %v: no %q in\n%s", test.env, err, want, output)
				}
			}
		}
	}
}
