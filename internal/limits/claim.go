package limits

import (
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// CheckPlaces returns the error of a limit in flight.
func CheckPlaces(name string, limit uint64, lease time.Duration) error {
	if err := checkName(name); err != nil {
		return err
	}
	if limit > window.MaxPlaces && limit != window.Unlimited {
		return outOfRange("Max", strconv.FormatUint(limit, 10), "at most 2^53-1; was a negative number converted?")
	}
	if lease < window.MinLease || lease > window.MaxLease {
		bound := fmt.Sprintf("from %v to %v; did you forget the unit?", window.MinLease, window.MaxLease)
		return outOfRange("Lease", lease.String(), bound)
	}
	return nil
}
