package inflight

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// ErrLost is the cause with which the context of a [Hold] ends when its places are lost.
var ErrLost = errors.New("inflight: the place is lost")

// Hold is places that are held until Release, or until they are lost. It is safe for concurrent use. A nil
// Hold holds nothing.
type Hold struct {
	limiter *Limiter
	ctx     context.Context // of the caller
	about   *about          // for the observer; nil if there is none
	ended   atomic.Uint32   // a reason; the first one counts
	context atomic.Pointer[derived]
	want    want
}

// derived is the context of a Hold.
type derived struct {
	context.Context
	cancel context.CancelCauseFunc
}

// about is what an observer is told of a call.
type about struct {
	ctx      context.Context
	key      string
	limit    Limit
	n        uint64
	asked    time.Duration
	used     uint64       // places of the key, when it was decided
	acquired atomic.Int64 // 0: not yet; endedBefore
}

// The reasons why a Hold has ended.
const (
	notEnded uint32 = iota
	released
	lost
	closed
)

// Release gives the places back. It does not wait for anything. Further calls do nothing.
func (h *Hold) Release() {
	if h != nil && h.end(released) {
		h.limiter.release(&h.want)
	}
}

// end ends the Hold for a reason. It returns false if it has ended before.
func (h *Hold) end(reason uint32) bool {
	if !h.ended.CompareAndSwap(notEnded, reason) {
		return false
	}
	if d := h.context.Load(); d != nil {
		d.cancel(cause(reason))
	}
	if h.about != nil {
		h.limiter.ended(h, reason)
	}
	return true
}

func cause(reason uint32) error {
	switch reason {
	case lost:
		return ErrLost
	case closed:
		return window.ErrClosed
	}
	return context.Canceled
}

// Valid reports whether the places are still held, by the monotonic clock of the process. Ask right before a step
// that can't be undone, and see [Hold.Token].
func (h *Hold) Valid() bool {
	return h != nil && h.ended.Load() == notEnded && h.want.valid(h.limiter.now())
}

// Context returns a context derived from the one that was given to Acquire. It also ends when the places are released, or
// when they are lost: then [context.Cause] is [ErrLost].
func (h *Hold) Context() context.Context {
	if h == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(ErrLost)
		return ctx
	}
	d := h.context.Load()
	if d == nil {
		ctx, cancel := context.WithCancelCause(h.ctx)
		if d = (&derived{ctx, cancel}); !h.context.CompareAndSwap(nil, d) {
			cancel(nil)
			d = h.context.Load()
		}
	}
	if reason := h.ended.Load(); reason != notEnded { // perhaps before it could be seen
		d.cancel(cause(reason))
	}
	return d.Context
}

// Token returns a number that is larger than those of all Holds of the key and name that were granted
// before, whatever the process: what the holder changes can refuse smaller ones than it has seen. It is 0 if
// the place was granted without the store: see [WithPolicy], and [Unlimited].
func (h *Hold) Token() uint64 {
	if h == nil {
		return 0
	}
	return h.want.token
}

// Degraded reports whether the policy has granted the places, or keeps them now, as the store is away: see [WithPolicy].
func (h *Hold) Degraded() bool {
	return h != nil && (h.want.alone || h.want.pump.kept.Load() && h.ended.Load() == notEnded)
}
