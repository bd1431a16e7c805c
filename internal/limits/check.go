// Package limits has what the RateLimit and all backends share: which limits are valid, takes of one
// count, and where aligned windows start.
package limits

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Algorithms are those of limits with a Scale.
var Algorithms = []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.TokenBucket,
	window.SlidingWindow, window.SlidingLog}

// maxName is how many characters a name may have.
const maxName = 64

// Check returns the error of a limit that no backend can keep, or nil.
func Check(l *window.Limit) error {
	if l.Name != "" {
		if err := checkName(l.Name); err != nil {
			return err
		}
	}
	switch {
	case HasCalendar(l):
		if err := checkCalendar(l); err != nil {
			return err
		}
	case !isScale(l.Scale):
		return scaleError(l.Scale)
	}
	if l.Max > window.Unlimited {
		return numberError("Max", l.Max)
	}
	if l.Algorithm < window.FixedWindow || l.Algorithm > window.CalendarWindow {
		return fmt.Errorf("%w: algorithm %d", window.ErrUnsupported, uint8(l.Algorithm))
	}
	if l.Burst == 0 {
		return nil
	}
	return checkBurst(l)
}

// HasCalendar reports whether a limit has a Calendar, or anything else that only limits with a Calendar have.
func HasCalendar(l *window.Limit) bool {
	return l.Calendar != 0 || l.Algorithm == window.CalendarWindow || l.StartDay != 0 || l.Zone != ""
}

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

// CheckScale returns an error that matches [window.ErrScale] if scale is less than [window.MinScale] or more than
// [window.MaxScale].
func CheckScale(scale time.Duration) error {
	if isScale(scale) {
		return nil
	}
	return scaleError(scale)
}

func isScale(d time.Duration) bool { return window.MinScale <= d && d <= window.MaxScale }

func scaleError(scale time.Duration) error {
	if scale < window.MinScale {
		return fmt.Errorf("%w: %v is less than %v; did you forget the unit?", window.ErrScale, scale, window.MinScale)
	}
	return fmt.Errorf("%w: %v is more than 146 years", window.ErrScale, scale)
}

// CheckNumber returns a RangeError if a number is over [window.Unlimited]: a negative one that was
// converted.
func CheckNumber(field string, n uint64) error {
	if n <= window.Unlimited {
		return nil
	}
	return numberError(field, n)
}

//go:noinline
func numberError(field string, n uint64) error {
	return outOfRange(field, strconv.FormatUint(n, 10), "at most 2^63-1; was a negative number converted?")
}

func outOfRange(field, value, bound string) error {
	return &window.RangeError{Field: field, Value: value, Bound: bound}
}

func checkName(name string) error {
	valid := len(name) <= maxName
	for i := 0; valid && i < len(name); i++ {
		valid = ' ' <= name[i] && name[i] <= '~'
	}
	if valid {
		return nil
	}
	return outOfRange("Name", fmt.Sprintf("%.*q", maxName, name), "at most 64 printable ASCII characters")
}

// checkBurst returns an error unless the limit is a token bucket, and the time in which an empty one fills is a
// time.Duration.
func checkBurst(l *window.Limit) error {
	if l.Algorithm != window.TokenBucket {
		return outOfRange("Burst", strconv.FormatUint(l.Burst, 10), "0, as only a token bucket has a burst")
	}
	if err := CheckNumber("Burst", l.Burst); err != nil || l.Max == 0 || l.Max == window.Unlimited {
		return err
	}
	hi, lo := bits.Mul64(l.Burst, uint64(l.Scale))
	if hi < l.Max {
		if fill, _ := bits.Div64(hi, lo, l.Max); fill < uint64(window.Never) {
			return nil
		}
	}
	return outOfRange("Burst", strconv.FormatUint(l.Burst, 10), "so large that the bucket fills in 146 years")
}

// Capacity returns what a limit allows at once: Max, or what a token bucket holds. A Max of 0 allows nothing, whatever
// the Burst is.
func Capacity(l *window.Limit) uint64 {
	if l.Algorithm == window.TokenBucket && l.Burst != 0 && l.Max != 0 {
		return l.Burst
	}
	return l.Max
}

// Identity returns what tells counts of a key apart. Of two ways to write a zone or a start day, it has one.
func Identity(l *window.Limit) window.Limit {
	of := window.Limit{Name: l.Name, Scale: l.Scale, Algorithm: l.Algorithm, Calendar: l.Calendar,
		StartDay: l.StartDay, Zone: l.Zone}
	if of.StartDay == 1 {
		of.StartDay = 0
	}
	if of.Zone == "UTC" {
		of.Zone = ""
	}
	return of
}

// MulDiv returns x*y/z and the remainder. The quotient must be less than 2^64.
func MulDiv(x, y, z uint64) (quotient, rest uint64) {
	hi, lo := bits.Mul64(x, y)
	return Div(hi, lo, z)
}

// Div returns a number of 128 bits divided by z, and the remainder. The quotient must be less than 2^64.
func Div(hi, lo, z uint64) (quotient, rest uint64) {
	if hi == 0 {
		return lo / z, lo % z
	}
	return bits.Div64(hi, lo, z)
}
