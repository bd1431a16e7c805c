package api

import "time"

// CloseTimeout is how long Close waits.
const CloseTimeout = 3 * time.Second

// Close closes a client, which may wait for requests that a server does not respond to. It then returns, and the client
// is closed when these requests end by its own timeouts.
func Close(client func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client()
	}()
	select {
	case <-closed:
	case <-time.After(CloseTimeout):
	}
}
