package throttr

import (
	"context"
	"time"
)

// EventKind is what an [Event] is about.
type EventKind uint8

// The kinds of events.
const (
	EventAllowed EventKind = iota + 1 // a hit was allowed
	EventDenied                       // a hit was denied
	EventFailed                       // a hit or Reset has failed, and its caller got an error
	EventReset                        // a window was reset
)

// String returns the kind's name: "allowed", "denied", "failed" or "reset".
func (k EventKind) String() string {
	switch k {
	case EventAllowed:
		return "allowed"
	case EventDenied:
		return "denied"
	case EventFailed:
		return "failed"
	case EventReset:
		return "reset"
	default:
		return "unknown"
	}
}

// Event is what an [Observer] is told.
type Event struct {
	Kind EventKind
	// Key is the key as the backend knows it. For a hit by [Entities], Entity and
	// Operation are what it was made of.
	Key               string
	Entity, Operation string
	Scale             time.Duration // the window's length
	Increment         uint64        // what the hit counts for; 0 for a Reset
	Result            Result        // of a hit that was allowed or denied; else only its Limit
	// Metadata is the very map that the caller of Entities gave: not to be changed, nor to
	// be looked at once Observe has returned.
	Metadata map[string]any
	Duration time.Duration // how long it took
	// Err is why it failed, or, if Result is Degraded, why the backend did.
	Err error
}

// Observer is told of every decision. It is called by the goroutine that made the hit,
// before it goes on: be quick. It must be safe for concurrent use.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function as an [Observer].
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }

// WithObserver has o told of every hit and Reset; with several, each of them, in order.
// Without an observer, or with nil, nothing is spent on it.
func WithObserver(o Observer) Option {
	return func(r *RateLimit) {
		switch first := r.observer; {
		case o == nil:
		case first == nil:
			r.observer = o
		default:
			r.observer = ObserverFunc(func(ctx context.Context, e Event) {
				first.Observe(ctx, e)
				o.Observe(ctx, e)
			})
		}
	}
}
