package throttr

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
)

// EventKind is what has happened.
type EventKind uint8

const (
	EventAllowed     EventKind = iota + 1 // a call was allowed
	EventDenied                           // a call was denied
	EventFailed                           // a call or a Reset returned an error
	EventReset                            // a window was reset
	EventSettled                          // a reservation was settled, or that failed
	EventUnavailable                      // the store is away: Err says why
	EventAvailable                        // the store is back, after Duration
	EventWouldDeny                        // a Shadow limit would have denied a call, which was allowed
)

// eventKinds has the words of kinds.
var eventKinds = [...]string{
	EventAllowed: "allowed", EventDenied: "denied", EventFailed: "failed", EventReset: "reset", EventSettled: "settled",
	EventUnavailable: "unavailable", EventAvailable: "available", EventWouldDeny: "would deny",
}

// String returns the kind as a word, such as "allowed".
func (k EventKind) String() string {
	if k == 0 || int(k) >= len(eventKinds) {
		return "unknown"
	}
	return eventKinds[k]
}

// Event is a decision of a [RateLimit], a reset, the settling of a reservation, or the begin or end of an
// outage, see [WithBreaker]. Calls that fail because an argument is invalid have none.
type Event struct {
	Kind EventKind
	// Call is "hit", "take", "charge", "reserve", "wait", "reset" or "forget". TakeAll, Reserve and WaitAll have an
	// event for each take if they are granted, and otherwise one for each take that is denied. It is empty if the
	// store is away, or back.
	Call     string
	Key      string
	Limit    Limit         // with its algorithm
	N        uint64        // of the call; 0 for a reset; what was used of a reservation
	Reserved uint64        // what a reservation that was settled had taken
	Result   Result        // what the limit has decided, if it has; else only its Limit
	Duration time.Duration // how long the call took; that of a wait includes the wait
	// Err is the error of a call that failed, or of the backend if Result is Degraded.
	Err error
}

// Observer receives events, in the goroutine of the call. It must be safe for concurrent use, and quick.
type Observer func(ctx context.Context, e Event)

// tell passes an event on, if there is an observer.
func (o Observer) tell(ctx context.Context, e Event) {
	if o != nil {
		o(ctx, e)
	}
}

// WithObserver adds an observer of all decisions, resets and settled reservations. It panics if o is nil.
func WithObserver(o Observer) Option {
	if o == nil {
		panic("throttr: WithObserver: the observer is nil")
	}
	return func(opts *options) {
		first := opts.observer
		opts.observer = func(ctx context.Context, e Event) {
			first.tell(ctx, e)
			o(ctx, e)
		}
	}
}

// observe reports a call that returned err. If e has a Kind, that stays unless the call has failed.
func (r *RateLimit) observe(ctx context.Context, e Event, err error) {
	switch {
	case err != nil:
		e.Result = Result{}
		if e.Kind == 0 {
			e.Result.Limit = limits.Capacity(&e.Limit)
		}
		e.Kind = EventFailed
		e.Err = err
	case e.Kind != 0:
	case e.Result.Allowed:
		e.Kind = EventAllowed
	case e.Limit.Shadow:
		e.Kind = EventWouldDeny
	default:
		e.Kind = EventDenied
	}
	r.observer.tell(ctx, e)
}
