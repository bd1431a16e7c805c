package testkit

import (
	"context"
	"sync/atomic"

	"github.com/throttr-go/throttr/window"
)

// Remote is a backend whose places are asked for in exchanges, as those of a store elsewhere.
type Remote struct {
	window.Backend
	err atomic.Pointer[error]
}

// Exchange returns the error of Fail, or makes the exchange.
func (r *Remote) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	if err := r.err.Load(); err != nil && *err != nil {
		return *err
	}
	return r.Backend.Exchange(ctx, claims, places)
}

// Fail makes further exchanges fail with err, unless it is nil.
func (r *Remote) Fail(err error) { r.err.Store(&err) }
