package testkit

import (
	"os"
	"testing"
)

// Slow skips a test unless THROTTR_SLOW_TESTS=1: one that waits in real time, or whose work is seconds of a processor.
// What it checks is checked on a smaller scale by a test that always runs.
func Slow(t testing.TB) {
	t.Helper()
	if os.Getenv("THROTTR_SLOW_TESTS") != "1" {
		t.Skip("runs with THROTTR_SLOW_TESTS=1")
	}
}
