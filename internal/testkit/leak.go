package testkit

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/mockserver"
)

// ofClient matches the stack of a goroutine that runs code of a client: of the root package, of a package under internal
// that a client uses, or of puddle.
var ofClient = regexp.MustCompile(`(?m)^github\.com/(jackc/puddle/|throttr-go/throttr(\.|/internal/([^st]|slot|sweep)))`)

// Stacks returns the stacks of all goroutines that run code of a client. Goroutines of tests that wait for one are
// among them.
func Stacks() []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	return slices.DeleteFunc(strings.Split(string(buf), "\n\n"),
		func(s string) bool { return !ofClient.MatchString(s) })
}

// RequireNoGoroutines fails the test if goroutines of a client outlive it. A bubble of
// testing/synctest does not need it: the bubble waits for all its goroutines.
func RequireNoGoroutines(t testing.TB) {
	t.Helper()
	for start := time.Now(); len(Stacks()) > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatalf("goroutines are left: %s", Stacks())
		}
	}
}

// Keys returns the keys of all live records, without the two that backends keep for themselves:
// that which parks the server, and that of the leader of the sweepers.
func Keys(srv *mockserver.Server) []string {
	return slices.DeleteFunc(srv.Keys(), func(key string) bool { return key == "" || key == sweep.LeaderKey })
}
