package inflight

import (
	"slices"

	"github.com/throttr-go/throttr/window"
)

// callers are those who want or hold places of a key and name. They are owed a decision, in order, and word of the end
// of what they hold. Those with a larger Max are first, and of these it is first come, first served.
type callers struct {
	*options
	changed func(*Hold) // is told of each that is decided, and of each that does not hold or want any more

	wants     []*Hold // that are not decided, in order
	holds     map[*Hold]struct{}
	held      uint64 // places that the store is told
	apart     uint64 // those that the policy has granted, and a strict store is not told
	unlimited uint64 // those that count nowhere
	heldMax   uint64 // the largest Max of what the store is told, since that was nothing
	more      bool   // the policy has granted some that the store is to be told, since its last answer
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
	if i := slices.IndexFunc(c.wants, func(h *Hold) bool { return h.state == inLine }); i >= 0 {
		return c.wants[i].want.Max
	}
	return 0
}

// refuse refuses a want.
func (c *callers) refuse(h *Hold, err error) {
	h.err = err
	c.set(h, refused)
}

// counter returns where the places of a Hold count.
func (c *callers) counter(h *Hold) *uint64 {
	switch {
	case h.want.Max == window.Unlimited:
		return &c.unlimited
	case h.apart:
		return &c.apart
	}
	return &c.held
}

// hold makes a want one that is held.
func (c *callers) hold(h *Hold) {
	c.holds[h] = struct{}{}
	*c.counter(h) += h.want.N
	if !h.apart {
		c.heldMax = max(c.heldMax, h.want.Max)
	}
	c.set(h, held)
}

// letGo ends what is held.
func (c *callers) letGo(h *Hold, s state) {
	delete(c.holds, h)
	*c.counter(h) -= h.want.N
	if c.held == 0 {
		c.heldMax = 0
	}
	c.set(h, s)
}

// endAll ends what is held: all when the Limiter is closed, and otherwise what the store is told.
func (c *callers) endAll(s state) {
	for h := range c.holds {
		if s == closed || !h.apart {
			c.letGo(h, s)
		}
	}
}

// decide decides wants by a policy, as the store can't: those that do not wait, or all. What the policy has granted apart
// from the store counts, and what is unlimited does not, as with the store.
func (c *callers) decide(policy Policy, err error, all bool) {
	behind := false // there is one before it that waits on
	c.wants = slices.DeleteFunc(c.wants, func(h *Hold) bool {
		w := &h.want
		room := max(w.Max/max(c.processes, 1), 1)
		fits := policy == Admit || !behind && w.N <= room && c.held+c.apart <= room-w.N
		switch {
		case w.Wait && (!all || policy != Refuse && !fits):
			behind = true
			return false
		case policy == Refuse:
			c.refuse(h, err)
		case fits:
			h.byPolicy = true
			h.apart = c.strict // the store has no room for it
			c.more = c.more || !h.apart
			c.hold(h)
		default:
			h.byPolicy = true
			c.refuse(h, errNoPlace)
		}
		return true
	})
}
