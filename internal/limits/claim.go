package limits

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

// CheckClaims returns the error of claims that no backend accepts, or nil.
func CheckClaims(claims []window.Claim, places []window.Places) error {
	if len(claims) != len(places) {
		return &window.RangeError{Field: "N", Value: strconv.Itoa(len(places)),
			Bound: fmt.Sprintf("%d places for as many claims", len(claims))}
	}
	process := "" // one that has been checked
	for i := range claims {
		if err := checkClaim(&claims[i], process); err != nil {
			return err
		}
		process = claims[i].Process
	}
	return nil
}

func checkClaim(c *window.Claim, known string) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	if c.Process == "" {
		if c.Seq != 0 || c.Held != 0 || len(c.Wants) > 0 {
			return &window.RangeError{Field: "Process", Value: `""`, Bound: "empty in claims that only ask"}
		}
		return nil
	}
	if c.Process != known && (len(c.Process) > maxName ||
		strings.ContainsFunc(c.Process, func(r rune) bool { return r <= ' ' || r > '~' })) {
		return &window.RangeError{Field: "Process", Value: fmt.Sprintf("%.*q", maxName, c.Process),
			Bound: "at most 64 printable ASCII characters without spaces"}
	}
	if c.Seq == 0 {
		return &window.RangeError{Field: "Seq", Value: "0", Bound: "1 or more"}
	}
	if len(c.Wants) > window.MaxWants {
		return &window.RangeError{Field: "Wants", Value: strconv.Itoa(len(c.Wants)),
			Bound: fmt.Sprintf("at most %d wants", window.MaxWants)}
	}
	if err := CheckLease(c.Lease); err != nil {
		return err
	}
	if err := cmp.Or(checkPlaces("Seq", c.Seq), checkPlaces("Held", c.Held), checkPlaces("HeldMax", c.HeldMax)); err != nil {
		return err
	}
	for _, w := range c.Wants {
		if err := checkPlaces("Max", w.Max); err != nil {
			return err
		}
		if w.N == 0 || w.N > w.Max {
			return &window.RangeError{Field: "N", Value: strconv.FormatUint(w.N, 10),
				Bound: fmt.Sprintf("from 1 to the Max, %d", w.Max)}
		}
	}
	return nil
}

// CheckLease returns an error if a lease of places in flight is too short or too long.
func CheckLease(lease time.Duration) error {
	if lease < window.MinLease || lease > window.MaxLease {
		return &window.RangeError{Field: "Lease", Value: lease.String(),
			Bound: fmt.Sprintf("from %v to %v; did you forget the unit?", window.MinLease, window.MaxLease)}
	}
	return nil
}

// CheckPlaces returns the error of a limit in flight, or of an n.
func CheckPlaces(name string, limit uint64, lease time.Duration) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := checkPlaces("Max", limit); err != nil {
		return err
	}
	return CheckLease(lease)
}

func checkPlaces(field string, n uint64) error {
	if n > window.MaxPlaces {
		return &window.RangeError{Field: field, Value: strconv.FormatUint(n, 10),
			Bound: "at most 2^53-1; was a negative number converted?"}
	}
	return nil
}
