package api

import (
	"context"
	"time"
)

// Await calls f on a goroutine of its own. If ctx ends before f does, it returns the error of ctx, and f goes on.
func Await(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CloseTimeout is how long Close waits.
const CloseTimeout = 3 * time.Second

// Close closes a client, which may wait for requests that a server does not respond to. It then returns, and the client
// is closed when these requests end by its own timeouts.
func Close(client func()) {
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	_ = Await(ctx, client)
}
