package inflight

import (
	"errors"
	"slices"
)

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

// errNoPlace is why a want is refused if there is no place.
var errNoPlace = errors.New("inflight: there is no place")

// undecided reports whether the caller still waits for a decision.
func (h *Hold) undecided() bool { return h.state == waiting || h.state == inLine }

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
