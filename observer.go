package throttr

import (
	"context"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	EventAllowed EventKind = iota + 1 // a hit was allowed
	EventDenied                       // a hit was denied
	EventFailed                       // a hit or Reset returned an error
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

// Event is a hit or a Reset, as an [Observer] sees it.
type Event struct {
	Kind EventKind
	// Key is the key in the backend. If the call came from [Entities], Entity and Operation
	// are what the key was made of.
	Key               string
	Entity, Operation string
	Parts             []string      // further parts, see Entities.With; must not be changed
	Scale             time.Duration // the length of the window
	Increment         uint64        // of the hit; 0 for a Reset
	Result            Result        // of the hit if it was allowed or denied; else only its Limit
	// Metadata is the map that the caller of Entities passed. It must not be changed, or used
	// after Observe has returned.
	Metadata map[string]any
	Duration time.Duration // how long the call took
	// Err is the error of a call that failed, or of the backend if Result is Degraded.
	Err error
}

// Observer observes the decisions of a RateLimit. The goroutine that makes a hit calls Observe
// before the hit returns, so Observe should be fast. It must be safe for concurrent use.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function that is an [Observer].
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) { f(ctx, e) }

// WithObserver makes o observe every hit and every Reset. Several observers are called in the
// order of the options. A nil o is ignored. A RateLimit without observers spends no time on
// events. WithObserver panics if o is a nil ObserverFunc.
func WithObserver(o Observer) Option {
	if f, ok := o.(ObserverFunc); ok && f == nil {
		panic("throttr: WithObserver: ObserverFunc is nil")
	}
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
