// Package fastpath lets a RateLimit have a decision at once, where a backend of this module has one without
// asking a store and without waiting: memory always, leases as long as the process holds places. Such a call
// needs no circuit breaker and no time limit, and takes less time than to copy a Window.
//
// A Decider belongs to the exact type of a backend: a type that embeds the backend may have a Hit of its own,
// which must be called.
package fastpath

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Op is what a call does. It consists of bits: a Decider may have more of its own.
type Op uint8

const (
	Take Op = iota
	Hit
)

// Decider has decisions at once.
type Decider interface {
	// Decide makes a hit or a take, or does nothing and returns false: then the methods of the backend must be
	// called. The limit, which is valid and can grant n, is in its parts, as most of these are in registers: a
	// Limit would be copied, which takes as long as to find the window.
	//
	// Granted says whether the call is allowed: for a hit on a fixed window, whether the count is within the
	// limit. Left is the time until end. Retry is when a call that was not granted would be granted. The ID is
	// that of a Window.
	Decide(ctx context.Context, key string, a window.Algorithm, max uint64, scale time.Duration, n uint64, op Op, burst uint64, name string) (
		count uint64, left, retry time.Duration, end time.Time, id int64, granted, ok bool)
}

// deciders return the Decider of a backend of their type, or nil. They are added by init functions only.
var deciders []func(window.Backend) Decider

// Add adds the Deciders of a type of backends. Call it in init.
func Add[B window.Backend](of func(B) Decider) {
	deciders = append(deciders, func(b window.Backend) Decider {
		if b, ok := b.(B); ok {
			return of(b)
		}
		return nil
	})
}

// Of returns the Decider of a backend, or nil if it has none.
func Of(b window.Backend) Decider {
	for _, of := range deciders {
		if d := of(b); d != nil {
			return d
		}
	}
	return nil
}
