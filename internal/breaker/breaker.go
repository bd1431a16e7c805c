// Package breaker has the circuit breaker of a server, whose connections show whether it is there. A call to a Throttr
// server passes two: the Circuit of the RateLimit (throttr.WithBreaker, package outage), then the Breaker of the pool.
package breaker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
)

// Breaker is a circuit breaker. The circuit is closed at first. While it is open, calls fail at once, and
// attempts go on in the background until one succeeds. It is safe for concurrent use.
type Breaker struct {
	min, max time.Duration
	cause    atomic.Pointer[error] // why the last attempt failed; nil while the circuit is closed
}

// New returns a breaker whose attempts have pauses between min and max.
func New(min, max time.Duration) *Breaker { return &Breaker{min: min, max: max} }

// Err returns why the circuit is open, and nil while it is closed.
func (b *Breaker) Err() error {
	if cause := b.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// Set opens the circuit because of a cause, or closes it if that is nil.
func (b *Breaker) Set(cause error) {
	if cause == nil {
		b.cause.Store(nil)
		return
	}
	b.cause.Store(&cause)
}

// Retry makes attempts, after the pauses of package backoff, until one succeeds and closes the circuit, or ctx ends.
func (b *Breaker) Retry(ctx context.Context, attempt func() error) {
	pauses := backoff.New(b.min, b.max)
	for pauses.Wait(ctx, b.Err()) == nil {
		err := attempt()
		b.Set(err)
		if err == nil {
			return
		}
	}
}
