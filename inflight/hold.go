package inflight

import (
	"context"
	"errors"
	"time"

	"github.com/throttr-go/throttr/window"
)

// ErrLost is the cause with which the context of a [Hold] ends when its places are lost: the process has not reached
// the store for three quarters of a lease, of which the log and an [Observer] have the error, or it stood still. With
// [WithStrict], the store can also have lost its data.
var ErrLost = errors.New("inflight: the place is lost")

// errNoPlace is why a want is refused if there is no place.
var errNoPlace = errors.New("inflight: there is no place")

// Hold is places that are held until Release, or until they are lost. It is safe for concurrent use.
type Hold struct {
	limiter *Limiter
	ctx     context.Context // of the caller
	key     string
	limit   Limit
	want    window.Want

	// The decision. It is constant once it is made, and guarded by the mutex of the Limiter before.
	pump     *pump  // that has decided
	err      error  // why nothing is held
	used     uint64 // places of the key, as far as the store has said
	token    uint64
	byPolicy bool // it was the policy that has decided
	apart    bool // the store is not told: it is unlimited, or the policy has granted it, and the store is strict

	// The mutex of the Limiter guards what follows.
	state    state
	ready    chan struct{} // is closed when it is decided; nil: nobody waits for that
	acquired time.Duration // when the observer knew of it; 0: it does not
	context  context.Context
	cancel   context.CancelCauseFunc // of context; nil until somebody asks for it
}

// state is that of a Hold. What leads where:
//
//	from      the store grants it   and if not          its exchange fails   it ends
//	waiting   held                  inLine or refused                        released or refused
//	inLine    held                  inLine              waiting              released or refused
//	held                                                                     released, lost or closed
type state uint8

const (
	waiting state = iota // for an exchange, or behind others
	inLine               // the store was asked, and has not granted it
	refused
	held
	released // or not wanted any more
	lost
	closed // with the Limiter
)

// undecided reports whether the caller still waits for a decision.
func (h *Hold) undecided() bool { return h.state == waiting || h.state == inLine }

// Release gives the places back. It does not wait for anything. Further calls do nothing, nor does that of a nil Hold.
func (h *Hold) Release() {
	if h != nil {
		h.limiter.release(h)
	}
}

// causes are why contexts end, if it is not because of Release.
var causes = map[state]error{lost: ErrLost, closed: window.ErrClosed}

// Valid reports whether the places are still held, by the monotonic clock of the process. Ask right before a step
// that can't be undone, and see [Hold.Token].
func (h *Hold) Valid() bool {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	return h.state == held && (h.apart || h.limiter.now() < h.pump.loseAt())
}

// Context returns a context derived from the one that was given to Acquire. It also ends when the places are
// released, or when they are lost: then [context.Cause] is [ErrLost].
func (h *Hold) Context() context.Context {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	if h.context == nil {
		h.context, h.cancel = context.WithCancelCause(h.ctx)
	}
	if h.state != held {
		h.cancel(causes[h.state])
	}
	return h.context
}

// Token returns a number that is larger than those of all Holds of the key and name that were granted
// before, whatever the process: what the holder changes can refuse smaller ones than it has seen. It is 0 if
// the place was granted without the store: see [WithPolicy], and [Unlimited].
func (h *Hold) Token() uint64 { return h.token }

// Degraded reports whether the policy has granted the places, or keeps them now, as the store is away: see
// [WithPolicy].
func (h *Hold) Degraded() bool {
	h.limiter.mu.Lock()
	defer h.limiter.mu.Unlock()
	return h.byPolicy || h.state == held && h.pump.keptUntil > 0
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

// changed tells that a Hold is decided, or does not hold or want anything any more. The mutex is held.
func (l *Limiter) changed(h *Hold) {
	if h.ready != nil {
		close(h.ready)
		h.ready = nil
		l.stats.Waiting--
	}
	if h.state == lost {
		l.stats.Lost += h.want.N
	}
	if h.state != held {
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
