// Package fastpath lets a RateLimit count on a backend of this module without the interface of backends,
// whose Windows take longer to copy than a hit to count. A path is for the exact type of a backend only: a
// type that embeds a backend may have a Hit of its own, which must be called.
package fastpath

import (
	"context"
	"errors"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Call is a hit or a take of a backend. The limit has no name and no burst, is valid, and can grant n. (Its
// fields are in registers: a Limit would be copied, which takes as long as to find the window.) Granted says
// whether the call is allowed: of a fixed window, whether the count is within the limit. Retry is when a
// call that was not granted would be granted, left the time until end.
type Call func(ctx context.Context, key string, a window.Algorithm, max uint64, scale time.Duration, n uint64) (
	count uint64, left, retry time.Duration, end time.Time, granted bool, err error)

// ErrAsk says that a call has done nothing, because it would have to ask a store.
var ErrAsk = errors.New("fastpath: the store must be asked")

// Path is the calls of a backend.
type Path struct {
	Hit, Take Call
	Local     bool // no call of the backend asks a store
}

// paths return the path of a backend of their type, or nil. They are added by init functions only.
var paths []func(window.Backend) *Path

// Add adds the paths of a type of backends. Call it in init.
func Add(path func(window.Backend) *Path) { paths = append(paths, path) }

// Of returns the path of a backend, or nil.
func Of(b window.Backend) *Path {
	for _, path := range paths {
		if p := path(b); p != nil {
			return p
		}
	}
	return nil
}
