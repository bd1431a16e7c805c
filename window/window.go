// Package window says what a rate limiter's backend is: a keeper of windows. Package
// throttr's RateLimit decides on top of one; throttr's Client.Backend and package memory
// are two, and package backendtest tests any.
//
// To write one, implement [Backend] on a store that can add to a number and read it in one
// step. Then run the conformance suite against it:
//
//	func TestMyBackend(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
//			clock := backendtest.NewClock()
//			return backendtest.Subject{Backend: mybackend.New(mybackend.WithClock(clock.Now)), Clock: clock}
//		})
//	}
//
// This package imports nothing but the standard library.
package window

import (
	"context"
	"time"
)

// Window is what a [Backend] knows of a window. The zero Window is no window.
type Window struct {
	Count     uint64        // hits so far, denied ones included
	ExpiresAt time.Time     // when it ends, by the backend's clock
	Left      time.Duration // from now to ExpiresAt; over 0 while the window is active
	StartedAt time.Time     // when it opened; zero where the backend does not keep it
	UpdatedAt time.Time     // when it was last added to; zero where the backend does not keep it
}

// Backend keeps windows. A window is known by its key and its scale, which is its length:
// the same key with another scale is another window.
//
// Whatever the backend, this holds. A window is active from the instant it opens until one
// scale later, that instant excluded; an aligned one (see [Algorithm]), until the next
// multiple of the scale. Adding to a window that is not active opens one that
// starts with what is added. A method's Window is the state right after it, with a Count
// that no concurrent caller is given as well: of n callers who each add 1, one is given
// k+1, one k+2, and so on. Counts do not wrap around.
//
// Every method is safe for any number of goroutines, and returns soon after its ctx ends
// with an error that matches the ctx's. If the ctx has ended before, nothing is done. Key
// is any string, the empty one included, and every byte of it counts; scale is positive.
// An error tells nothing of whether the hit was counted, unless the backend says so.
type Backend interface {
	// Hit adds increment to the active window, or opens one. Where the count is over
	// limit already, and the window is known to be active, it may leave the hit uncounted
	// and return the count it knows.
	Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (Window, error)
	// Inc adds increment to the active window, or opens one.
	Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (Window, error)
	// Get returns the active window, or the zero Window.
	Get(ctx context.Context, key string, scale time.Duration) (Window, error)
	// Set opens a window with the given count, in place of the active one.
	Set(ctx context.Context, key string, scale time.Duration, count uint64) (Window, error)
	// Reset ends the active window, if there is one.
	Reset(ctx context.Context, key string, scale time.Duration) error
	// Delete ends the active windows of a key and returns how many there were: those of
	// the given scales, or, if none is given, those of all scales that the backend knows
	// of.
	Delete(ctx context.Context, key string, scales ...time.Duration) (int, error)
}

// Algorithm is when windows open and end.
type Algorithm uint8

const (
	// PerKey windows open with the key's first hit, and end one scale later. From a
	// window's start to its end, at most limit hits are allowed, and keys' windows end at
	// different times. The default.
	PerKey Algorithm = iota
	// Aligned windows start at multiples of the scale since 1970 in UTC: a scale of an
	// hour makes windows that end on the hour, for every key at once. A key that is hit
	// just before and just after such an instant is allowed twice the limit in a short
	// time.
	Aligned
)

// String returns the algorithm's name.
func (a Algorithm) String() string {
	switch a {
	case PerKey:
		return "per-key fixed window"
	case Aligned:
		return "aligned fixed window"
	default:
		return "unknown algorithm"
	}
}

// zeroUnix is the zero time.Time, in seconds since 1970.
const zeroUnix = -62135596800

// Start returns when a window of the given scale that opens now starts.
func (a Algorithm) Start(now time.Time, scale time.Duration) time.Time {
	if a != Aligned {
		return now
	}
	// Truncate counts from the zero time, so now is moved to where it is as far from
	// that as it is from 1970. It takes any year, which UnixNano does not.
	moved := time.Unix(now.Unix()+zeroUnix, int64(now.Nanosecond()))
	return now.Add(moved.Truncate(scale).Sub(moved))
}
