package window

import (
	"context"
	"sync"
)

// BackendCloser is what throttr.Open opens.
type BackendCloser interface {
	Backend
	Ping(ctx context.Context) error // asks every store whether it is there
	Stats() Stats                   // calls, errors, state of the store, by store: for logs and metrics
	Close() error
}

// Stats is what a backend has done.
type Stats struct {
	Stores  []StoreStats
	Windows int // how many windows this process remembers
}

// StoreStats is what a backend has done with one store.
type StoreStats struct {
	Name   string // host and port, or the path of a socket; "memory"
	Calls  uint64 // of the backend
	Errors uint64 // of these calls, mistakes in the program excepted
	// Err is why the store is away, as of the last call or attempt. It is nil while the store responds. A call whose
	// ctx has ended changes nothing: a store that hangs opens the circuit of a RateLimit, which is logged and observed.
	Err error
}

var drivers sync.Map // of what Driver returns, by scheme

// Register makes a backend available to throttr.Open under the scheme of a URL. Call it in init. It
// panics if the scheme is taken. Every driver understands the parameter lazy=true: it then waits for half a
// second at most, and calls fail with [ErrUnavailable] until the servers respond. No error contains the URL's
// password. An unknown parameter is an error that matches [ErrConfig].
func Register(scheme string, open func(ctx context.Context, url string) (BackendCloser, error)) {
	if open == nil {
		panic("window: Register: open is nil")
	}
	if _, taken := drivers.LoadOrStore(scheme, open); taken {
		panic("window: Register: the scheme " + scheme + " is taken")
	}
}

// Driver returns what was registered for a scheme, nil if nothing was. Programs call throttr.Open.
func Driver(scheme string) func(ctx context.Context, url string) (BackendCloser, error) {
	driver, _ := drivers.Load(scheme)
	open, _ := driver.(func(ctx context.Context, url string) (BackendCloser, error))
	return open
}
