// Package window defines the backend of a rate limiter, which keeps windows, and its errors.
// A RateLimit of package throttr makes decisions with one. Client.Backend of package throttr
// and package memory are backends. Package backendtest tests them.
//
// To write a backend, implement [Backend] on a store that can add to a number and read it in
// one step. Then run the conformance suite:
//
//	func TestMyBackend(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
//			clock := backendtest.NewClock()
//			return backendtest.Subject{Backend: mybackend.New(mybackend.WithClock(clock.Now)), Clock: clock}
//		})
//	}
//
// Outside of this module, it imports only the standard library.
package window

import (
	"context"
	"time"
)

// Window describes a window. The zero Window means that there is no active window.
type Window struct {
	Count     uint64        // the sum of the increments so far
	ExpiresAt time.Time     // when the window ends, by the backend's clock
	Left      time.Duration // from now until ExpiresAt; positive while the window is active
	StartedAt time.Time     // when it opened; zero if the backend does not store it
	UpdatedAt time.Time     // when it was last added to; zero if the backend does not store it
	// ID tells windows of a key and scale apart: Windows of one backend with the same ID, if it is
	// not 0, describe the same window. 0 if the backend does not set it. See [Taker].
	ID int64
	// Refused says that the hit was refused and did not count: Count is without it. Only algorithms
	// whose refused hits do not count set it (see [Algorithm]).
	Refused bool
	// RetryAfter is when a hit that was refused would be granted if nobody else hit meanwhile. Only
	// algorithms set it for which that is not when the window ends; otherwise it is 0.
	RetryAfter time.Duration
}

// Backend keeps windows. A window is identified by a key and a scale. The scale is the length
// of the window. The same key with another scale is another window.
//
// Every backend satisfies the following:
//   - A window is active from the time it opens until one scale later, exclusive. An aligned
//     window (see [Algorithm]) is active until the next multiple of the scale.
//   - An addition to a window that is not active opens a window with that count.
//   - The Window that a method returns describes the window right after the call.
//   - No two concurrent calls that add to a window return the same Count: n callers that each add
//     1 to a count of k get k+1, k+2, … k+n. Calls that add 0, and hits that are not counted, are
//     excepted.
//   - Counts do not wrap around.
//   - All methods are safe for concurrent use.
//   - A call returns soon after its ctx ends, with an error that matches the ctx's. If ctx has
//     ended before the call, the call does nothing.
//   - A key is any string, including the empty one. Keys are equal only if all bytes are.
//   - A scale under 1 ms, or one that the backend can't keep, is refused with an error that
//     matches [ErrScale], or is a [RangeError]. See [CheckScale].
//   - A limit, increment or count that is too large for the backend is refused with an error
//     that matches [ErrRange].
//   - A call after the backend was closed fails with an error that matches [ErrClosed].
//
// The three errors are mistakes in the program, or its end. Any other error is a failure of the
// backend, to which a policy of a RateLimit applies. Whether a hit was counted that returned an
// error is unknown, unless the backend says otherwise.
type Backend interface {
	// Hit adds increment to the active window, or opens one. If the count is over limit
	// already and the window is known to be active, it may return that count and not count
	// the hit.
	Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Window, error)
	// Inc adds increment to the active window, or opens one.
	Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (Window, error)
	// Get returns the active window, or the zero Window.
	Get(ctx context.Context, key string, scale time.Duration) (Window, error)
	// Set opens a window with the given count. It replaces the active one.
	Set(ctx context.Context, key string, scale time.Duration, count uint64) (Window, error)
	// Reset ends the active window, if there is one.
	Reset(ctx context.Context, key string, scale time.Duration) error
	// Delete ends the active windows of a key that have one of the given scales, and returns
	// how many there were. Without scales, it ends those of all scales that the backend
	// knows.
	Delete(ctx context.Context, key string, scales ...time.Duration) (int, error)
}

// Algorithm is how hits are counted: when windows open and end, and whether refused hits count.
type Algorithm uint8

const (
	// PerKey windows open with the key's first hit and end one scale later. From the start to
	// the end of a window, at most limit hits are allowed. The windows of different keys end
	// at different times. The default.
	PerKey Algorithm = iota
	// Aligned windows start at multiples of the scale since 1970 in UTC. For example, windows
	// of an hour end on the hour, for all keys at once. Twice the limit may be allowed in a
	// short time, if the key is hit just before and just after the end of a window.
	Aligned
	// TokenBucket refills continuously: it holds up to limit tokens, and gains limit tokens per
	// scale. A hit takes as many tokens as its increment, or is refused if there are fewer, and
	// then takes none. In any interval, at most limit + interval·limit/scale hits are allowed.
	TokenBucket
	// Sliding estimates the hits of the last scale: those of the present aligned window, and those
	// of the one before, weighted by how much of it lies in the last scale. A refused hit does not
	// count. In one scale, up to twice the limit less one can be allowed in the worst case.
	Sliding
	// SlidingLog remembers the time of every hit that was allowed. In any interval of one scale, at
	// most limit hits are allowed. A refused hit does not count. It takes memory in proportion to
	// the limit, which is at most 10,000 by default.
	SlidingLog
)

// String returns the algorithm's name.
func (a Algorithm) String() string {
	switch a {
	case PerKey:
		return "per-key fixed window"
	case Aligned:
		return "aligned fixed window"
	case TokenBucket:
		return "token bucket"
	case Sliding:
		return "sliding window"
	case SlidingLog:
		return "sliding log"
	default:
		return "unknown algorithm"
	}
}

// zeroUnix is the zero time.Time in seconds since 1970.
const zeroUnix = -62135596800

// Start returns when a window of the given scale that opens now starts.
func (a Algorithm) Start(now time.Time, scale time.Duration) time.Time {
	if a != Aligned {
		return now
	}
	// Truncate counts from the zero time, so now is shifted by the difference between that
	// and 1970. Unlike UnixNano, this works in any year.
	shifted := time.Unix(now.Unix()+zeroUnix, int64(now.Nanosecond()))
	return now.Add(shifted.Truncate(scale).Sub(shifted))
}
