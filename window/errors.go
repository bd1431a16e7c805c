package window

import (
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/valuesize"
)

// The errors of backends. The errors that a backend returns match them. ErrScale and ErrRange are
// mistakes in the program, and ErrClosed is its end, so no policy applies to them. ErrOverloaded and
// ErrFull are failures of the backend.
var (
	// ErrScale says that a scale is less than [MinScale]. See [CheckScale].
	ErrScale = errors.New("throttr: invalid scale")
	// ErrRange says that a number is larger than a backend can store. See [RangeError].
	ErrRange = errors.New("throttr: number out of range")
	// ErrClosed says that a client or a backend has been closed.
	ErrClosed = errors.New("throttr: closed")
	// ErrOverloaded says that as many calls were waiting as may wait at a time. The call was not
	// sent, or only by an earlier attempt.
	ErrOverloaded = errors.New("throttr: too many calls are waiting")
	// ErrFull says that the backend has no room for another key. Nothing was counted. Clients that
	// can make up keys can cause it, so whoever serves such requests without a limit has none.
	ErrFull = errors.New("throttr: too many keys")
)

// MinScale is the shortest scale that a backend accepts.
const MinScale = time.Millisecond

// CheckScale returns an error that matches [ErrScale] if scale is less than [MinScale]. Such a
// scale is a mistake: a scale of 60 is 60 ns, and limits nothing. Every method of a backend
// that has a scale calls CheckScale first.
func CheckScale(scale time.Duration) error {
	if scale < MinScale {
		return fmt.Errorf("%w: %v is less than %v; did you forget the unit?", ErrScale, scale, MinScale)
	}
	return nil
}

// RangeError is a scale, limit, increment or count that does not fit the value size of a
// server, or is over a bound of the backend. It matches [ErrRange].
type RangeError struct {
	Field string // "scale", "limit", "increment" or "count"
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
	return fmt.Sprintf("throttr: %s %s is out of range: %d-byte values hold %s; %s", e.Field, e.Value, e.Size, e.Bound, would)
}

// Unwrap returns [ErrRange].
func (e *RangeError) Unwrap() error { return ErrRange }

// MaxValue returns the largest value that fits in size bytes, which is 1, 2, 4 or 8.
func MaxValue(size int) uint64 { return valuesize.Max(size) }

// SmallestSize returns the smallest value size in bytes for which fits returns true, and 0
// if there is none. It gives fits the [MaxValue] of each size. Use it for [RangeError.Needs].
func SmallestSize(fits func(maxValue uint64) bool) int { return valuesize.Smallest(fits) }
