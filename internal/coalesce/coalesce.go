// Package coalesce lets hits on one window share the requests to the store that keeps it.
//
// A [Coalescer] gathers the hits of one count. At most one request that counts is in flight at a time: one
// round trip, whatever the store makes of it. Hits that arrive meanwhile are queued. They share the next, which
// adds the sum of their increments, and each of them gets its own position in the count: of n hits
// that add 1 to a count of k, one gets k+1, one k+2, and so on.
//
// The package knows no store. A [Windows] says whether the active one is known, whether a hit can be
// decided without a request, and how hits are counted:
//
//	group := coalesce.NewGroup(1024)
//	defer group.Close()
//	c := group.New(w)
//	r, sent, err := c.Do(ctx, coalesce.Hit{Max: 100, Increment: 1})
package coalesce

import (
	"context"
	"errors"
	"time"

	"github.com/throttr-go/throttr/window"
)

// ErrAttempts says that a hit was not counted because the window was over, or another one, each
// time that the hit was about to be counted.
var ErrAttempts = errors.New("throttr: the window was over whenever the hit was about to be counted")

// Hit is a hit, a take or a charge: it adds Increment to a window.
type Hit struct {
	Max       uint64
	Increment uint64
	// Must says that the hit is a charge: it is counted, and a count that would pass the largest
	// stays there. Other hits may be decided by the count that is known, if that is over Max.
	Must bool
	// Take says that the hit counts only if the count is at most Max then. Otherwise it is
	// refused, and changes nothing.
	Take bool
}

// SharedHits describes the hits that share a request.
type SharedHits struct {
	Hits  int
	Sum   uint64    // of the increments
	Max   uint64    // the highest of the limits
	Must  bool      // a hit has Must
	Takes bool      // a hit has Take
	Now   time.Time // when the first of them was to be counted
	// Fresh says that Refresh has just succeeded: nothing was counted and no operation has
	// run since.
	Fresh bool
	// QueuedBefore says that Fresh is set, and that the hit that Admit is given was queued before
	// Refresh was called. So what Refresh has read may deny that hit.
	QueuedBefore bool
}

// Verdict is what Admit decides about a hit.
type Verdict uint8

const (
	// Share adds the hit to those that share the next request.
	Share Verdict = iota
	// Defer leaves the hit in the queue until those that share the request have been counted. If
	// there are none, the window is refreshed first.
	Defer
	// Decided means that the hit needs no request.
	Decided
)

// Outcome is the outcome of shared hits. They were counted or refused in the open window, or failed, or it is
// NotCounted.
type Outcome struct {
	// WindowOpen says that the window was open.
	WindowOpen bool
	// Full says that the hits were not counted, because the open window can't hold them. All
	// are over their limits, and are refused.
	Full   bool
	Window window.Window // as of the last hit, if WindowOpen; without the hits, if Full
	Err    error         // fails all hits
	Sent   bool          // whether hits that failed may have been counted
}

// NotCounted is the outcome if the window was over, or another one: the hits go back to the front of
// the queue.
var NotCounted Outcome

// Windows are the windows of a count. A coalescer's hits are counted in the active one, if there is one.
//
// Calls of Refresh, calls of Count and operations do not overlap. Their ctx ends with the
// group, with one exception: the ctx of a Count with a single hit may be that of the hit's
// caller.
type Windows interface {
	// Admit decides about a hit, given those before it that share the next request. It
	// returns a Window only if the verdict is Decided.
	//
	// Admit is called with the coalescer locked, possibly while a request is under way. It
	// must return soon and must not call the coalescer.
	Admit(b SharedHits, h Hit) (Verdict, window.Window)
	// Refresh reads what Admit needs to know, and prepares the next Count, if nothing is done
	// before. An error fails the hits that are queued, up to the next operation.
	Refresh(ctx context.Context) error
	// Count counts at least one hit.
	Count(ctx context.Context, b SharedHits) Outcome
	// Subtract is told that takes that were counted last were refused, which have added n. It is called
	// right after Count, with the coalescer locked, so that Admit knows the count without them.
	Subtract(n uint64)
	// GiveBack gives n back to the window that the last hits were counted in. It is called after
	// Subtract. If it is too late, or if it fails, n stays counted until the window ends.
	GiveBack(ctx context.Context, n uint64)
}

// Operation is a change of the window that no hit takes part in, such as setting its count. If
// err is not nil, sent reports whether the change may have been made.
type Operation func(ctx context.Context) (w window.Window, sent bool, err error)
