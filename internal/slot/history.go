package slot

import "time"

// History is what the lookups for one purpose have shown, on one connection. It begins as the zero
// History, and again so with each new connection.
type History struct {
	Last Lookup
	// Since is when the response to the first lookup arrived that showed the slot as Last shows it.
	Since [2]time.Time
}

// Extend returns the history with one more lookup.
func (b *Bands) Extend(h History, l Lookup) History {
	next := History{Last: l, Since: [2]time.Time{l.Received, l.Received}}
	for id := range h.Since {
		if b.same(h.Last, l, id) {
			next.Since[id] = h.Since[id]
		}
	}
	return next
}

// same reports whether a slot has not changed between two lookups. Both must show the same, and
// too little time must have passed for the slot to change and change back:
//
//   - A window is followed by another one in the same slot only after two Resets. Each takes a
//     guard (rule 10).
//   - A doomed slot is removed, and its successor is idle before it is doomed.
//   - Any other slot has a window in between, which lasts for a scale.
func (b *Bands) same(from, to Lookup, id int) bool {
	if from.Received.IsZero() {
		return false
	}
	old, now := from.Slots[id], to.Slots[id]
	state, gap := b.State(now), to.Received.Sub(from.Sent)
	if b.State(old) != state {
		return false
	}
	switch state {
	case Live:
		return gap < b.Guard
	case Doomed:
		return gap < b.duration(b.Margin-b.Doom) && old.Count == now.Count && now.TTL <= old.TTL
	default:
		return gap < b.Scale && old.Count == now.Count && now.TTL <= old.TTL
	}
}

// stable reports whether a slot has not changed for a guard. Then no action is under way any
// more that rests on what the slot was before (rule 8).
func (b *Bands) stable(h History, id ID) bool {
	return !h.Last.Sent.Before(h.Since[id].Add(b.Guard))
}

// onceStable returns an action that rests on the last lookup, if slots are stable. Otherwise it returns the
// lookup after which they may be (rule 8).
func (b *Bands) onceStable(h History, gap time.Duration, a Action, ids ...ID) Action {
	for _, id := range ids {
		if !b.stable(h, id) {
			return b.again(h, gap, ids...)
		}
	}
	return b.by(a, h.Last.Sent)
}

// again returns the lookup after which slots may be stable. If the last one was so slow that the
// next one may come later than a gap after it, the next one is sooner, and more have to follow.
func (b *Bands) again(h History, gap time.Duration, ids ...ID) Action {
	at := h.Last.Received
	for _, id := range ids {
		if t := h.Since[id].Add(b.Guard); t.After(at) {
			at = t
		}
	}
	last := h.Last
	trip := last.Received.Sub(last.Sent)
	soon := last.Sent.Add(b.Guard / 2)
	if !at.Add(2*trip).Before(last.Sent.Add(gap)) && soon.Before(at) {
		at = soon
	}
	return Action{Kind: Look, Slot: last.First, At: at}
}
