package inflight

import (
	"context"
	"errors"
	"slices"
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
	asked   time.Duration // when the caller has come; 0: nobody observes

	// The decision. It is constant once it is made, and guarded by the mutex of the Limiter before.
	pump  *pump  // that has decided
	err   error  // why nothing is held
	used  uint64 // places of the key, as far as the store has said
	token uint64
	alone bool // the policy has decided
	apart bool // the store is not told: it is unlimited, or the policy has granted it, and the store is strict

	// The mutex of the Limiter guards what follows.
	state    state
	index    int           // in the holds of the pump
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
	return h.state == held && (h.apart || h.limiter.now() < h.pump.heldUntil())
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
	return h.alone || h.state == held && h.pump.keptUntil > 0
}

// callers are those who want or hold places of a key and name. They are owed a decision, in order, and word of the end
// of what they hold. Those with a larger Max are first, and of these it is first come, first served.
type callers struct {
	rules   rules
	changed func(*Hold) // is told of each that is decided, and of each that does not hold or want any more

	wants   []*Hold // that are not decided, in order
	holds   []*Hold // that are held, in any order
	held    uint64  // places that the store is told
	apart   uint64  // those that it is not told
	heldMax uint64  // the largest Max of what the store is told, since that was nothing
}

// rules are what a Limiter does when the store can't, or may not, decide.
type rules struct {
	policy    Policy
	processes uint64
	strict    bool
}

// set sets the state of one that is decided, or has ended.
func (c *callers) set(h *Hold, s state) {
	h.state = s
	c.changed(h)
}

// insert adds a want.
func (c *callers) insert(h *Hold) {
	i := len(c.wants)
	for i > 0 && c.wants[i-1].want.Max < h.want.Max {
		i--
	}
	c.wants = slices.Insert(c.wants, i, h)
}

// lineMax returns the largest Max of wants in line, or 0. A want whose Max is not larger is behind them.
func (c *callers) lineMax() uint64 {
	for _, h := range c.wants {
		if h.state == inLine {
			return h.want.Max
		}
	}
	return 0
}

// refuse refuses a want.
func (c *callers) refuse(h *Hold, err error) {
	h.err = err
	c.set(h, refused)
}

// hold makes a want one that is held.
func (c *callers) hold(h *Hold) {
	h.index = len(c.holds)
	c.holds = append(c.holds, h)
	if h.apart {
		c.apart += h.want.N
	} else {
		c.held += h.want.N
		c.heldMax = max(c.heldMax, h.want.Max)
	}
	c.set(h, held)
}

// letGo ends what is held.
func (c *callers) letGo(h *Hold, s state) {
	last := len(c.holds) - 1
	c.holds[h.index] = c.holds[last]
	c.holds[h.index].index = h.index
	c.holds[last] = nil
	c.holds = c.holds[:last]
	if h.apart {
		c.apart -= h.want.N
	} else {
		c.held -= h.want.N
	}
	if c.held == 0 {
		c.heldMax = 0
	}
	c.set(h, s)
}

// letAllGo ends what is held: all, or what the store is told.
func (c *callers) letAllGo(s state, all bool) {
	for i := len(c.holds) - 1; i >= 0; i-- {
		if h := c.holds[i]; all || !h.apart {
			c.letGo(h, s)
		}
	}
}

// decide decides wants by a policy, as the store can't: those that do not wait, or all. It reports whether the store
// is to be told of places that were granted.
func (c *callers) decide(policy Policy, err error, all bool) (granted bool) {
	behind := uint64(0)
	c.wants = slices.DeleteFunc(c.wants, func(h *Hold) bool {
		w := &h.want
		room := max(w.Max/max(c.rules.processes, 1), 1)
		switch {
		case w.Wait && !all:
			behind = max(behind, w.Max)
			return false
		case policy == Refuse:
			c.refuse(h, err)
		case policy == Admit, w.Max > behind && w.N <= room && c.held+c.apart <= room-w.N:
			h.alone = true
			h.apart = c.rules.strict // the store has no room for it
			granted = granted || !h.apart
			c.hold(h)
		case !w.Wait:
			h.alone = true
			c.refuse(h, errNoPlace)
		default:
			behind = max(behind, w.Max)
			return false
		}
		return true
	})
	return granted
}
