// Package coalesce lets hits on one window share requests to the store that keeps it.
//
// A [Coalescer] serves one window at a time, that of one key and scale. It has at most one
// request for it under way. Hits that come meanwhile are queued, and the next request
// carries the sum of their increments as a batch. Each hit of a batch is given its own place in
// the count: of n hits that add 1 each, one is given k+1, one k+2, and so on.
//
// The package knows no store. What a window is, whether it is known, and how it counts are
// up to a [Window]:
//
//	group := coalesce.NewGroup(coalesce.Options{Now: time.Now, MaxQueued: 1024})
//	defer group.Close()
//	c := group.New(w)
//	r, sent, err := c.Do(ctx, coalesce.Hit{Limit: 100, Increment: 1})
package coalesce

import (
	"context"
	"errors"
	"time"
)

// ErrQueueFull says that as many hits were queued as may be.
var ErrQueueFull = errors.New("throttr: too many hits are queued")

// Hit asks a window to count.
type Hit struct {
	Limit     uint64
	Increment uint64
	// Must says that the hit is counted or fails. Without it, a hit on a window that is
	// known to be over Limit may be answered with the count that is known.
	Must bool
}

// Batch describes the hits that are to share a request.
type Batch struct {
	Hits  int
	Sum   uint64    // of the increments
	Limit uint64    // the highest of the limits
	Now   time.Time // when the batch was begun
	// Fresh says that Refresh has just succeeded: nothing was counted and no operation has
	// run since.
	Fresh bool
}

// Verdict is what becomes of a hit.
type Verdict uint8

const (
	// Join adds the hit to the batch.
	Join Verdict = iota
	// Wait leaves the hit in the queue until the batch has been counted. If the batch is
	// empty, Refresh is called first.
	Wait
	// Decided answers the hit without a request.
	Decided
)

// Result is the answer to a hit. It has what the coalescer's callers need of a
// window.Window, and is small enough to be returned in registers.
type Result struct {
	Count     uint64        // as of the hit
	ExpiresAt time.Time     // when the window ends
	Left      time.Duration // until then
	ID        int64         // identifies the window
}

// Outcome is what Count returns.
type Outcome struct {
	// Counted says that the batch was counted. Otherwise, without an error, its hits go
	// back to the front of the queue.
	Counted bool
	Result  Result // of the last hit of the batch
	Err     error  // fails all hits of the batch
	Sent    bool   // with an error: the batch may have been counted all the same
}

// Window is what a coalescer counts in. At any time it is the active window of its key and
// scale, or none.
//
// Calls of Refresh and Count and operations never overlap. Their ctx is that of the
// group, except that Count is given the ctx of the caller if a batch has no other hit.
type Window interface {
	// Admit decides what becomes of h, which is next in line behind the hits in b. A Result
	// or an error goes with the verdict Decided only. Admit sends nothing and returns soon:
	// it is called with the coalescer's lock held, be it while a request is under way.
	Admit(b Batch, h Hit) (Verdict, Result, error)
	// Refresh finds out what Admit needs to know. An error fails all hits that are queued, up
	// to the next operation. None of them was sent.
	Refresh(ctx context.Context) error
	// Count counts a batch of at least one hit.
	Count(ctx context.Context, b Batch) Outcome
}

// Operation is what has a window to itself, such as setting its count. Sent says that it
// may have had an effect; it matters with an error only.
type Operation func(ctx context.Context) (r Result, sent bool, err error)
