package slot

import "time"

// remove returns the next action towards the removal of doomed slots: wait until they are stable,
// and then claim them (rules 8 and 9).
func (b *Bands) remove(h History, slots [2]bool) Action {
	var exhausted [2]bool
	for id, o := range h.Last.Slots {
		if slots[id] && !b.stable(h, ID(id)) {
			return b.again(h, b.Scale, ID(id))
		}
		exhausted[id] = slots[id] && o.Count == b.Largest
	}
	if exhausted != [2]bool{} {
		// ADD 1 would fail. Several clients may do this: none can have claimed the slot.
		return b.by(Action{Kind: Refill, Slots: exhausted}, h.Last.Sent)
	}
	return b.by(Action{Kind: Claim, Slots: slots}, h.Last.Sent)
}

// Claimed returns the removal of the slots for which a Claim has succeeded, or false if there are
// none. Added are the statuses of its ADDs, and shown is what its QUERYs showed. (The counter may
// hold only one ADD more: then others see the same count as the client that has claimed it.) h is
// the history that led to the claim.
func (b *Bands) Claimed(h History, a Action, added [2]bool, shown [2]Observation, sent time.Time) (Action, bool) {
	next := b.by(Action{Kind: Remove}, sent)
	for id, o := range shown {
		next.Slots[id] = a.Slots[id] && added[id] && b.State(o) == Doomed && o.Count == h.Last.Slots[id].Count+1
	}
	return next, next.Slots != [2]bool{}
}
