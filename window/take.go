package window

import (
	"context"
	"math"
	"time"
)

// Limit is a take: N of a window that may have a count of at most Limit.
type Limit struct {
	Key   string
	Scale time.Duration // the length of the window
	Limit uint64        // the highest count, N included
	N     uint64        // what to take
	// Name is the name of the limit in the events of a RateLimit. Backends ignore it.
	Name string
}

// Taker is an optional interface of a [Backend]. A take counts only if it is granted, so a refusal
// costs nothing. What was taken can be given back.
//
// In addition to what holds for every backend, a Taker satisfies the following, except that IDs of
// rolling algorithms differ, see [Algorithm.Rolling]:
//   - A take of n is granted if the count of the active window, or 0 if there is none, is at most
//     limit-n. Then n is counted, as by Inc. Otherwise nothing changes, and no window opens.
//   - A take of 0 counts nothing and opens no window, even if it is granted.
//   - The Window that a method returns has an ID other than 0, which stays the same as long as the
//     window is active. Another window of the key and scale has another ID, even if it was opened
//     by Set, or after a Reset, at the same time. Hit, Inc, Get and Set return it, too.
//   - What is given back is subtracted from the count of the window that it was taken from, and
//     never from that of another one. The window stays active, even with a count of 0.
//   - Whether a take or a give-back that returned an error was counted is unknown. Callers never
//     repeat a give-back: if it was counted twice, a window would allow more than its limit. What
//     is not given back stays counted until the window ends.
//
// A backend that forwards to another one may implement Taker and return an error that matches
// [errors.ErrUnsupported] if the other one is no Taker. It never replaces a take by a Get and a
// Hit.
type Taker interface {
	// Take takes n of the window of a key and scale, if its count stays within limit. It returns
	// the state of the window after that, which is the zero Window if the take was not counted
	// and there is no active window.
	Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (w Window, granted bool, err error)
	// TakeAll makes all takes, or none of them if one is refused. It stores the states of their
	// windows in windows, which has the length of limits; all is void if there is an error. If
	// limits has a window more than once, its takes are one take of their sum, to which the lowest of
	// its limits applies. A sum over the largest uint64 is never granted: see [Total].
	// Without limits, it returns true and no error, even if ctx has ended or the backend is closed.
	//
	// Of takes that are made at the same time, at least one is granted if each of them would be
	// granted alone.
	TakeAll(ctx context.Context, limits []Limit, windows []Window) (granted bool, err error)
	// GiveBack gives n back to the window that id identifies. It returns false if the window is
	// over, or if the backend can't give back to it any more: then n stays counted.
	GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error)
}

// Peeker is a [Taker] that tells what a take would return without making it. It is optional. A
// backend of a rolling algorithm should be one, as Get does not know the limit: see [Peek].
type Peeker interface {
	// Peek returns the state of the window of a key and scale. Refused says whether Take would be
	// refused, and RetryAfter when it would be granted then. Nothing changes.
	Peek(ctx context.Context, key string, scale time.Duration, limit, n uint64) (Window, error)
}

// Peek is the method Peek of a backend that is a [Peeker]. For others, the count that Get returns
// decides.
func Peek(ctx context.Context, b Backend, key string, scale time.Duration, limit, n uint64) (Window, error) {
	if p, ok := b.(Peeker); ok {
		return p.Peek(ctx, key, scale, limit, n)
	}
	w, err := b.Get(ctx, key, scale)
	w.Refused = err == nil && (n > limit || w.Count > limit-n)
	return w, err
}

// Total returns what all limits together take from the window of limits[i]. If the sum is over the
// largest uint64, ok is false, and total is the largest uint64: such takes are never granted.
func Total(limits []Limit, i int) (total uint64, ok bool) {
	for j := range limits {
		if l := &limits[j]; j == i || l.Scale == limits[i].Scale && l.Key == limits[i].Key {
			if total += l.N; total < l.N {
				return math.MaxUint64, false
			}
		}
	}
	return total, true
}
