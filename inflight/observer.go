package inflight

import (
	"context"
	"time"
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
	kinds := [...]string{"", "acquired", "denied", "failed", "released", "lost", "unavailable", "available", "data lost"}
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return "unknown"
}

// Event is what an [Observer] sees.
type Event struct {
	Kind     Kind
	Key      string
	Limit    Limit
	N        uint64
	Waited   time.Duration // until the decision
	Held     time.Duration // of Released and Lost
	InUse    uint64        // of Acquired and Denied: places of the key right after the decision, of all processes; 0: not known
	Degraded bool          // the store has not decided
	Err      error
}

// decided tells the observer of a decision, and when a Hold began. If the observer panics, nobody has the Hold, and
// it holds nothing.
func (l *Limiter) decided(h *Hold, granted bool, err error) {
	a, now := h.about, l.now()
	told := false
	defer func() {
		if granted && !told && h.ended.CompareAndSwap(notEnded, released) {
			l.release(&h.want)
		}
	}()
	e := Event{Kind: Denied, Key: a.key, Limit: a.limit, N: a.n, Waited: now - a.asked, InUse: a.used, Err: err}
	switch {
	case err != nil:
		e.Kind = Failed
	case granted:
		e.Kind = Acquired
		e.Degraded = h.Degraded()
	}
	over := granted && !a.acquired.CompareAndSwap(0, int64(now))
	l.observer(a.ctx, e)
	told = true
	if over {
		l.tellEnd(h, h.ended.Load(), now)
	}
}

// endedBefore is when a Hold was acquired of which the observer was to be told that it has ended before it was told
// that it had begun.
const endedBefore = -1

// ended tells the observer that a Hold has ended.
func (l *Limiter) ended(h *Hold, reason uint32) {
	if h.about.acquired.CompareAndSwap(0, endedBefore) {
		return // decided tells it, unless the caller has gone before it had the places
	}
	l.tellEnd(h, reason, time.Duration(h.about.acquired.Load()))
}

func (l *Limiter) tellEnd(h *Hold, reason uint32, acquired time.Duration) {
	a, kind := h.about, Released
	if reason == lost {
		kind = Lost
	}
	l.observer(a.ctx, Event{Kind: kind, Key: a.key, Limit: a.limit, N: a.n, Held: l.now() - acquired, Degraded: h.Degraded()})
}
