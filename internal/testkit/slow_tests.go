package testkit

import (
	"os"
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit/race"
)

// Thorough reports whether tests take the time they need: with THROTTR_SLOW_TESTS=1, without -short and the race
// detector. Otherwise those that would take more than a few seconds do a part of their work.
func Thorough() bool {
	return os.Getenv("THROTTR_SLOW_TESTS") == "1" && !testing.Short() && !race.Enabled
}

// Slow skips a test unless tests are thorough: one that waits in real time for long.
func Slow(t testing.TB) {
	t.Helper()
	if !Thorough() {
		t.Skip("runs with THROTTR_SLOW_TESTS=1")
	}
}

// Fewer returns n, or a tenth of it unless tests are thorough.
func Fewer[N int | time.Duration](n N) N {
	if Thorough() {
		return n
	}
	return max(1, n/10)
}
