// Package fastpath lets a RateLimit have a decision at once, where a backend of this module has one without
// asking a store and without waiting: memory always, leases as long as the process holds places. Such a call
// needs no circuit breaker and no time limit, and takes less time than to copy a Window.
package fastpath

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Op is what a call does. It consists of bits: a Decider may have more of its own.
type Op uint8

const (
	Take Op = iota
	Hit
)

// Decider is the view of a backend that has decisions at once, as package inside describes.
type Decider interface {
	// Decide makes a hit or a take, or does nothing and returns false: then the methods of the backend must be
	// called. The limit, which is valid and can grant n, is in its parts, as most of these are in registers: a
	// Limit would be copied, which takes as long as to find the window.
	//
	// Granted says whether the call is allowed: for a hit on a fixed window, whether the count is within the
	// limit. Left is the time until end. Retry is when a call that was not granted would be granted. The ID is
	// that of a Window.
	Decide(ctx context.Context, key string, a window.Algorithm, max uint64, scale time.Duration, n uint64, op Op, burst uint64, name string) (
		count uint64, left, retry time.Duration, end time.Time, id int64, granted, ok bool)
}
