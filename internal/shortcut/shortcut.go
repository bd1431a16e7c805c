// Package shortcut is how a RateLimit has package memory count a hit: what it is told fits in
// registers, where a window.Window is copied from one caller to the next, which takes longer
// than the counting.
package shortcut

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Counter counts hits as a [window.Backend] does.
type Counter interface {
	// Count is Hit, told in short: the count, how long the window has been open, how long
	// until it ends, and when that is. If the hit is within the limit, both durations may be
	// those of a moment ago. The scale must be positive.
	Count(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (
		n uint64, passed, left time.Duration, end time.Time, err error)
}

// Of returns a backend's Counter, or nil. Package memory, where it is linked, sets it: a
// method of the backend would also be one of those that embed it, and would pass by their
// Hit.
var Of = func(window.Backend) Counter { return nil }
