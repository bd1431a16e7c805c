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
		return &window.RangeError{Field: "Max", Value: strconv.FormatUint(limit, 10),
			Bound: "at most 2^53-1; was a negative number converted?"}
	}
	if lease < window.MinLease || lease > window.MaxLease {
		return &window.RangeError{Field: "Lease", Value: lease.String(),
			Bound: fmt.Sprintf("from %v to %v; did you forget the unit?", window.MinLease, window.MaxLease)}
	}
	return nil
}
