package window

import (
	"errors"
	"fmt"
)

// The errors of backends. The errors that a backend returns match them. ErrScale, ErrRange,
// ErrUnsupported and ErrConfig are mistakes in the program, and ErrClosed is its end, so no policy
// applies to them. The others are failures.
var (
	// ErrScale says that a scale is less than [MinScale], or more than [MaxScale].
	ErrScale = errors.New("throttr: invalid scale")
	// ErrRange says that a number is out of range. See [RangeError].
	ErrRange = errors.New("throttr: number out of range")
	// ErrUnsupported says that a backend does not have an algorithm or a method. It matches
	// [errors.ErrUnsupported], but what an operating system calls unsupported does not match it: that
	// is an outage.
	ErrUnsupported = fmt.Errorf("throttr: %w", errors.ErrUnsupported)
	// ErrConfig says that a configuration or a URL can't be used.
	ErrConfig = errors.New("throttr: invalid configuration")
	// ErrClosed says that a client or a backend has been closed.
	ErrClosed = errors.New("throttr: closed")
	// ErrOverloaded says that as many calls were waiting as may wait at a time. The call was not
	// sent, or only by an earlier attempt.
	ErrOverloaded = errors.New("throttr: too many calls are waiting")
	// ErrFull says that a backend has no room for another key. Nothing was counted. Clients that
	// can make up keys can cause it, so whoever serves such requests without a limit has none.
	ErrFull = errors.New("throttr: store is full")
	// ErrUnavailable says that the store is away: it could not be reached, or did not respond.
	ErrUnavailable = errors.New("throttr: the store is unavailable")
)

// RangeError is a field of a limit, an n or a count that is out of range: it does not fit the value size
// of a server, or is over a bound of the backend. It matches [ErrRange].
type RangeError struct {
	Field string // "Name", "Max", "Scale", "Burst", "Calendar", "Zone", "StartDay", "Lease" or "N", or a field of a Claim
	Value string // the value that was given
	Bound string // the values that are possible
	Size  int    // the server's value size in bytes; 0 if the bound does not depend on it
	Needs int    // the smallest value size in bytes that would do; 0 if none
}

// Error names the field, the bound, and the size that would do.
func (e *RangeError) Error() string {
	if e.Size == 0 {
		return fmt.Sprintf("throttr: %s %s is out of range: it may be %s", e.Field, e.Value, e.Bound)
	}
	would := "no value size would do"
	if e.Needs > 0 {
		would = fmt.Sprintf("%d-byte values (uint%d) would do", e.Needs, 8*e.Needs)
	}
	return fmt.Sprintf("throttr: %s %s is out of range: %d-byte values hold %s; %s", e.Field, e.Value, e.Size,
		e.Bound, would)
}

// Unwrap returns [ErrRange].
func (e *RangeError) Unwrap() error { return ErrRange }
