// Package backoff makes the pauses between attempts at something that fails.
package backoff

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff is a sequence of pauses. The first lasts Min and each further one twice as long as
// the one before, up to Max. Every pause is then made up to a tenth shorter or longer at
// random, so that clients whose server returns do not all try at the same moment.
//
// A Backoff is not safe for concurrent use.
type Backoff struct {
	min, max time.Duration
	next     time.Duration // before the jitter
}

// New returns a Backoff at its first pause. If min is over max, every pause is max.
func New(min, max time.Duration) *Backoff {
	if max > math.MaxInt64/2 {
		max = math.MaxInt64 / 2 // adding the jitter must not overflow
	}
	if min > max {
		min = max
	}
	return &Backoff{min: min, max: max, next: min}
}

// Next returns how long to wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	pause := b.next
	b.next += min(b.next, b.max-b.next)
	return pause - pause/10 + rand.N(pause/5+1)
}

// Reset starts over with the shortest pause. Call it after an attempt that succeeded.
func (b *Backoff) Reset() { b.next = b.min }

// Wait waits for the next pause. It returns ctx's error if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It returns ctx's error if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
