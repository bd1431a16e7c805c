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
	// Refused says that the hit was refused and did not count: Count is without it. Only backends
	// whose refused hits do not count set it: see [Algorithm], and package lease.
	Refused bool
	// RetryAfter is when a hit that was refused would be granted if nobody else hit meanwhile. Only
	// algorithms set it for which that is not when the window ends; otherwise it is 0.
	RetryAfter time.Duration
}

// Backend keeps windows. A window is identified by a key and a scale. The scale is the length
// of the window. The same key with another scale is another window.
//
// Every backend satisfies the following, except that windows of rolling algorithms differ, see
// [Algorithm.Rolling]:
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
// TokenBucket, Sliding and SlidingLog are rolling algorithms: see [Algorithm.Rolling].
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
	// If a call has another limit than the one before, the same part of the bucket is full.
	TokenBucket
	// Sliding estimates the hits of the last scale: those of the present aligned window, and those
	// of the one before, weighted by how much of it lies in the last scale. A refused hit does not
	// count. In one scale, up to twice the limit less one can be allowed in the worst case: with a
	// limit of 100, 100 hits just before the end of an aligned window, and then 99 while their
	// weight falls to 1.
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

// Rolling reports whether a is TokenBucket, Sliding or SlidingLog. These algorithms have no windows
// that end at a time: room for hits comes back bit by bit. What [Backend] and [Taker] say about
// windows applies to them as follows:
//   - Hit decides like Take: it counts if the count stays within limit. Otherwise nothing changes,
//     the Window has Refused set and the Count without the hit, and RetryAfter is when the same hit
//     would be granted if nobody else hit. An increment over limit is never granted: RetryAfter is
//     then Left, or the scale if the count is 0.
//   - Count is rounded up to a whole number, so a hit of n is granted if Count is at most limit-n.
//     It falls as time passes. Calls can return the same Count.
//   - ExpiresAt is when the count is 0 if nobody hits: then there is no active window. Nothing
//     opens a window with a count of 0, and one whose count falls to 0 ends.
//   - StartedAt and UpdatedAt are zero. The ID that a take returns identifies the take, and not the
//     window. The ID that other methods return identifies nothing.
//   - Inc counts even beyond the limit. Set forgets what was counted, and counts hits now. A
//     backend may store fewer than the given number, but not fewer than the limit, and one that
//     needs the limit for what it stores may forget the hits of Inc and Set after a scale, if no
//     hit or take has told it.
//   - GiveBack gives back what the take still takes up: as if n fewer had been taken, but never
//     what has come back by itself since. A token bucket may give less back, or return false, if
//     other takes have been given back since the take.
func (a Algorithm) Rolling() bool { return a >= TokenBucket && a <= SlidingLog }

// Teller is a [Backend] that tells its algorithm. It is optional.
type Teller interface {
	// Algorithm returns the algorithm of all windows of the backend.
	Algorithm() Algorithm
}

// AlgorithmOf returns the algorithm of a backend. It is PerKey if the backend is no [Teller].
func AlgorithmOf(b Backend) Algorithm {
	if t, ok := b.(Teller); ok {
		return t.Algorithm()
	}
	return PerKey
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
