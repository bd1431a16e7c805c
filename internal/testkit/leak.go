package testkit

import (
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/mockserver"
)

// ofClient matches the stack of a goroutine that runs code of a client: of the root package, of puddle, or of a package
// under internal, but for systemtest and testkit, in which the tests are.
var ofClient = regexp.MustCompile(
	`(?m)^github\.com/(jackc/puddle/|throttr-go/throttr(\.|/internal/([^st]|slot|sweep)))`)

// Stacks returns the stacks of all goroutines that run code of a client. Goroutines of tests that wait for one are
// among them.
func Stacks() []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	return slices.DeleteFunc(strings.Split(string(buf), "\n\n"),
		func(s string) bool { return !ofClient.MatchString(s) })
}

// Keys returns the keys of all live records, without the two that backends keep for themselves:
// that which parks the server, and that of the leader of the sweepers.
func Keys(srv *mockserver.Server) []string {
	return slices.DeleteFunc(srv.Keys(), func(key string) bool { return key == "" || key == sweep.LeaderKey })
}
