package slot

import "time"

// History is what the lookups of one connection have shown. The zero History has no lookup. Start
// a new one with each connection, and with each request.
type History struct {
	Last  Lookup
	Since [2]time.Time // when the first lookup was answered that showed the slot as Last shows it
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

// same reports whether a slot cannot have changed between two lookups: both show the same, and
// too little time has passed between them for the slot to return to what it was. For that
//
//   - a doomed slot must be removed, and then be idle until it is doomed again;
//   - any other slot without a window must have one, which takes a scale;
//   - a window must be followed by another one in the same slot. That takes two Resets, and each
//     takes a guard.
func (b *Bands) same(from, to Lookup, id int) bool {
	if from.Received.IsZero() {
		return false
	}
	old, now := from.Slots[id], to.Slots[id]
	state, gap := b.State(now), to.Received.Sub(from.Sent)
	switch {
	case b.State(old) != state:
		return false
	case state == Live:
		return gap < b.Guard
	case state == Doomed:
		return gap < b.duration(b.Margin-b.Doom) && old.Count == now.Count && now.TTL <= old.TTL
	default:
		return gap < b.Scale && old.Count == now.Count && now.TTL <= old.TTL
	}
}

// settled reports whether the history shows that a slot has not changed for a guard. Then no
// move is under way any more that rests on what the slot was before.
func (b *Bands) settled(h History, id ID) bool {
	return !h.Last.Sent.Before(h.Since[id].Add(b.Guard))
}
