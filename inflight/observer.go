package inflight

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/internal/api"
)

// Observer sees events. It must be safe for concurrent use, and must not call the Limiter.
type Observer func(ctx context.Context, e Event)

// Kind is what has happened.
type Kind uint8

const (
	Acquired    Kind = iota + 1 // places are held
	Denied                      // there was no place, and the call did not wait
	Failed                      // there was no decision; Err says why
	Released                    // places were given back, by the holder or by Close
	Lost                        // places were lost
	Unavailable                 // the store is away; Err says why
	Available                   // it is back
	DataLost                    // it has lost its data, or with WithStrict may have
)

// String returns the kind as one word.
func (k Kind) String() string {
	return api.Name(k, "unknown", "", "acquired", "denied", "failed", "released", "lost", "unavailable", "available",
		"data lost")
}

// Event is what an [Observer] sees.
type Event struct {
	Kind     Kind
	Key      string
	Limit    Limit
	N        uint64
	Waited   time.Duration // until the decision
	Held     time.Duration // of Released and Lost
	InUse    uint64        // of Acquired and Denied: of all processes, right after the decision; 0: not known
	Degraded bool          // the store has not decided
	Err      error
}

// observeOutage tells the observer that the store is away, because of a cause, or that it is back.
func (l *Limiter) observeOutage(cause error, after time.Duration) {
	kind := Available
	if cause != nil {
		kind = Unavailable
	}
	l.observe(Event{Kind: kind, Held: after, Err: cause})
}

// observe tells the observer of an event of the store.
func (l *Limiter) observe(e Event) {
	if l.observer != nil {
		l.observer(context.Background(), e)
	}
}

// decided tells the observer of a decision.
func (l *Limiter) decided(h *Hold, waited time.Duration, err error) {
	e := Event{
		Kind: Acquired, Key: h.key, Limit: h.limit, N: h.want.N, Waited: waited, InUse: h.used, Degraded: h.Degraded(),
	}
	switch {
	case err == errNoPlace:
		e.Kind = Denied
	case err != nil:
		e.Kind = Failed
		e.Err = err
	}
	l.observer(h.ctx, e)
	l.mu.Lock()
	defer l.unlock()
	h.acquired = l.now()
	if err == nil && h.state != held { // before the observer knew that it was
		l.ended(h)
	}
}

// ended ends the context of a Hold that has ended, and tells the observer if it knows of it. The mutex is held.
func (l *Limiter) ended(h *Hold) {
	if h.cancel != nil {
		l.later = append(l.later, func() { h.cancel(causes[h.state]) })
	}
	if h.acquired == 0 {
		return
	}
	e := Event{Kind: Released, Key: h.key, Limit: h.limit, N: h.want.N, Held: l.now() - h.acquired,
		Degraded: h.byPolicy}
	if h.state == lost {
		e.Kind = Lost
	}
	l.later = append(l.later, func() { l.observer(h.ctx, e) })
}
