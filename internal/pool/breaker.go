package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
)

// breaker is the circuit breaker of a server. The circuit is closed at first. An attempt to
// connect that fails opens it: callers then fail at once. The pool goes on trying in the
// background, and closes the circuit when an attempt has succeeded.
//
// There is no half-open state in which a caller's request tests the server. A connection and
// its probe are test enough, and no caller waits for them.
type breaker struct {
	minBackoff, maxBackoff time.Duration

	// mu guards cause.
	mu    sync.Mutex
	cause error // why the last attempt failed; nil while the circuit is closed
}

// set records the outcome of an attempt to connect. An error opens the circuit, nil closes it.
func (b *breaker) set(err error) {
	b.mu.Lock()
	b.cause = err
	b.mu.Unlock()
}

// err returns nil while the circuit is closed. While it is open, err returns an error that
// matches ErrUnavailable and the outcome of the last attempt.
func (b *breaker) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, b.cause)
}

// retry calls attempt after pauses that double, until it returns nil or ctx ends. Attempt
// calls set.
func (b *breaker) retry(ctx context.Context, attempt func() error) {
	pauses := backoff.New(b.minBackoff, b.maxBackoff)
	for pauses.Wait(ctx) == nil {
		if attempt() == nil {
			return
		}
	}
}
