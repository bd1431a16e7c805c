package window

import "time"

// Checker is a [Backend] that knows in advance which limits it can keep. It is optional.
type Checker interface {
	// Check returns the error that every Hit with this scale and limit would return because
	// the backend can't keep such a limit, or nil. The error matches [ErrScale], or is a
	// [RangeError]. Check asks no server.
	Check(scale time.Duration, limit uint64) error
}
