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
	EventFailed                       // a hit, take or Reset returned an error
	EventReset                        // a window was reset
	EventSettled                      // a reservation was settled, or that failed
)

// String returns the kind's name: "allowed", "denied", "failed", "reset" or "settled".
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
	case EventSettled:
		return "settled"
	default:
		return "unknown"
	}
}

// Event is a hit, a take, a Reset or the settling of a reservation, as an [Observer] sees it.
type Event struct {
	Kind EventKind
	// Name is the name of the limit, see RateLimit.Named.
	Name string
	// Key is the key in the backend. If the call came from [Entities], Entity and Operation
	// are what the key was made of.
	Key               string
	Entity, Operation string
	Parts             []string      // further parts, see Entities.With; must not be changed
	Scale             time.Duration // the length of the window
	Increment         uint64        // of the hit; 0 for a Reset; what was used of a reservation
	// Take says that it was a take, and not a hit: Increment counts only if it was allowed. A
	// take of several limits has an event for each limit if it is allowed, and otherwise one for
	// each limit that denies it.
	Take     bool
	Waited   bool   // the take was one of RateLimit.Wait: Duration includes the wait
	Reserved uint64 // what a reservation that was settled had taken
	Result   Result // of the hit if it was allowed or denied; else only its Limit
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

// WithObserver makes o observe every hit, take and Reset, and every reservation that is settled.
// Several observers are called in the order of the options. A nil o is ignored. A RateLimit without
// observers spends no time on events. WithObserver panics if o is a nil ObserverFunc.
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

// Named returns a RateLimit that is the same as r, except that its events have a name. Use it for
// limits that should be separate in logs and metrics:
//
//	logins := limiter.Named("login")
//
// Names should be few, and chosen by the program. Windows do not depend on the name. Middleware of
// package httplimit names its limits.
func (r *RateLimit) Named(name string) *RateLimit {
	named := *r
	switch o := r.observer.(type) {
	case nil:
	case namedObserver:
		named.observer = namedObserver{o.Observer, name}
	default:
		named.observer = namedObserver{o, name}
	}
	return &named
}

// namedObserver gives events a name.
type namedObserver struct {
	Observer
	name string
}

// Observe implements [Observer].
func (o namedObserver) Observe(ctx context.Context, e Event) {
	if e.Name == "" {
		e.Name = o.name
	}
	o.Observer.Observe(ctx, e)
}
