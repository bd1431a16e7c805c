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

// Fewer returns n, or a tenth of it unless tests are thorough.
func Fewer[N int | time.Duration](n N) N {
	if Thorough() {
		return n
	}
	return max(1, n/10)
}
