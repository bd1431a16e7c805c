package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
)

// breaker is the circuit breaker of a server. The circuit is closed at first. An attempt to
// connect that fails opens it: callers then fail at once. Attempts go on in the background,
// and the first that succeeds closes the circuit.
//
// There is no half-open state, in which a caller's request would test the server. A connection and
// its probe are enough of a test, and no caller waits for them.
type breaker struct {
	minBackoff, maxBackoff time.Duration

	// mu guards cause.
	mu    sync.Mutex
	cause error // why the last attempt failed; nil while the circuit is closed
}

// err returns nil while the circuit is closed. While it is open, err returns an error that
// matches ErrUnavailable and the reason why the last attempt failed.
func (b *breaker) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, b.cause)
}

// open opens the circuit because an attempt has failed. The caller must then start a goroutine
// that runs retry.
func (b *breaker) open(cause error) { b.set(cause) }

// retry makes attempts, after pauses that double, until one succeeds and closes the circuit,
// or ctx ends.
func (b *breaker) retry(ctx context.Context, attempt func() error) {
	pauses := backoff.New(b.minBackoff, b.maxBackoff)
	for pauses.Wait(ctx) == nil {
		err := attempt()
		b.set(err)
		if err == nil {
			return
		}
	}
}

func (b *breaker) set(cause error) {
	b.mu.Lock()
	b.cause = cause
	b.mu.Unlock()
}
