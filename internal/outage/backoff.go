package outage

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"syscall"
	"time"
)

// Backoff is the pauses between attempts at something that fails. The first lasts Min, and each further one twice as
// long as the one before, up to Max. Every pause is then made up to a tenth shorter or longer at
// random, so that clients whose server returns do not all try at the same moment.
//
// A Backoff is not safe for concurrent use.
type Backoff struct {
	min, max time.Duration
	next     time.Duration // before the jitter
}

// NewBackoff returns a Backoff at its first pause. If first is over longest, every pause is longest.
func NewBackoff(first, longest time.Duration) *Backoff {
	longest = min(longest, math.MaxInt64/2) // adding the jitter must not overflow
	first = min(first, longest)
	return &Backoff{min: first, max: longest, next: first}
}

// Next returns how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	pause := b.next
	b.next += min(b.next, b.max-b.next)
	return jitter(pause)
}

// jitter returns a pause that is up to a tenth shorter or longer, so that not all processes ask at once.
func jitter(pause time.Duration) time.Duration { return pause - pause/10 + rand.N(pause/5+1) }

// Reset starts over with the shortest pause. Call it after an attempt that succeeded.
func (b *Backoff) Reset() { b.next = b.min }

// Wait waits for the pause after an attempt that has failed with err. It returns ctx's error if ctx
// ends first.
//
// If err says that nobody listens there, the pauses do not grow: such an attempt costs next to
// nothing, and ends soon after a server has started. Each lasts half of Min to Min.
func (b *Backoff) Wait(ctx context.Context, err error) error {
	pause := b.Next()
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) { // of a TCP port or a Unix socket
		b.Reset()
		pause = b.min/2 + rand.N(b.min/2+1)
	}
	return Sleep(ctx, pause)
}

// Sleep waits for d. It returns ctx's error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	return SleepUntil(ctx, time.Now().Add(d), nil)
}

// SleepUntil waits until a time, if that is not zero, or until wake is closed or has an element. It returns ctx's error
// if ctx has ended. If it has not to wait, it makes no timer: in a bubble of testing/synctest, one that fires as it is
// received from can crash the race detector (https://go.dev/issue/78156).
func SleepUntil(ctx context.Context, t time.Time, wake <-chan struct{}) error {
	var due <-chan time.Time
	if !t.IsZero() {
		left := time.Until(t)
		if left <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err()
}
