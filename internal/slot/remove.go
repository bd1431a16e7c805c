package slot

import "time"

// Visit returns what a janitor, a watcher or a sweeper does: it removes what is doomed and whose
// TTL is below a bound, Bands.Doom for a janitor and Bands.Watch for a watcher. A Look that is
// far away is the next visit.
func (b *Bands) Visit(h History, below uint64) Move {
	var which [2]bool
	for id, r := range h.Last.Slots {
		which[id] = b.State(r) == Doomed && r.TTL < below
	}
	if which != [2]bool{} {
		return b.remove(h, which)
	}
	if w, ok := b.untidy(h.Last); ok {
		return b.tidy(h, w)
	}
	if a, other := b.states(h.Last); a == Absent && other == Absent {
		return Move{Kind: Done}
	}
	return Move{Kind: Look, At: b.NextVisit(h.Last, below)}
}

// Untidy reports whether a lookup shows an open window beside a slot that is over: hits have
// arrived late, or whoever opened the window has died. A Visit soon frees the slot, so that the next
// window need not wait for a removal.
func (b *Bands) Untidy(l Lookup) bool {
	_, ok := b.untidy(l)
	return ok
}

// untidy returns the open window beside a slot that is over. There is still time for a Tidy.
func (b *Bands) untidy(l Lookup) (Window, bool) {
	w, ok := b.Live(l)
	return w, ok && b.State(l.Slots[w.Slot.Other()]) == Over && w.Until.After(l.Received.Add(2*b.Guard))
}

// tidy returns the next move on the way to freeing the slot beside an open window.
func (b *Bands) tidy(h History, w Window) Move {
	y := w.Slot.Other()
	if !b.settled(h, y) {
		return b.lookAgain(h, y)
	}
	return Move{Kind: Tidy, Slot: w.Slot, By: h.Last.Sent.Add(b.Guard)}
}

// Below returns the bound for the visits of a client that last opened a window at some time: it
// is the janitor, unless a TTL shows that another client has opened one since.
func (b *Bands) Below(l Lookup, opened time.Time) uint64 {
	most := b.duration(b.Top) - l.Sent.Sub(opened)
	for _, r := range l.Slots {
		if r.Exists && b.duration(r.TTL) > most {
			return b.Watch
		}
	}
	return b.Doom
}

// NextVisit returns when the first TTL is below a bound for certain.
func (b *Bands) NextVisit(l Lookup, below uint64) (at time.Time) {
	for _, r := range l.Slots {
		if !r.Exists {
			continue
		}
		t := l.Received
		if r.TTL >= below {
			t = t.Add(b.duration(r.TTL + 1 - below))
		}
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// retire returns the next move on the way to making a slot doomed that is over, and that nobody
// can free.
func (b *Bands) retire(h History, id ID) Move {
	if !b.settled(h, id) {
		return b.lookAgain(h, id)
	}
	return Move{Kind: Retire, Slot: id, By: h.Last.Sent.Add(b.Guard)}
}

// remove returns the next move on the way to removing doomed slots: wait until they are settled,
// claim them, and purge what was claimed.
func (b *Bands) remove(h History, which [2]bool) Move {
	exhausted := [2]bool{}
	for id, r := range h.Last.Slots {
		if which[id] && !b.settled(h, ID(id)) {
			return b.lookAgain(h, ID(id))
		}
		exhausted[id] = which[id] && r.Count == b.Largest
	}
	by := h.Last.Sent.Add(b.Guard)
	if exhausted != [2]bool{} {
		return Move{Kind: Refill, Which: exhausted, By: by}
	}
	return Move{Kind: Claim, Which: which, By: by}
}

// Claimed returns the removal of the slots that a claim has got. claim is what the QUERYs of the
// Claim showed. A slot is claimed if it is still doomed and its count is exactly one more than
// before; so of several claims at most one succeeds. It returns false if none is claimed.
func (b *Bands) Claimed(h History, m Move, claim [2]Record, sent time.Time) (Move, bool) {
	next := Move{Kind: Remove, By: sent.Add(b.Guard)}
	for id, r := range claim {
		next.Which[id] = m.Which[id] && b.State(r) == Doomed && r.Count == h.Last.Slots[id].Count+1
	}
	return next, next.Which != [2]bool{}
}

// removal appends the requests of a Refill, Claim or Remove.
func (b *Bands) removal(dst []Op, m Move) []Op {
	for id, chosen := range m.Which {
		switch {
		case m.Kind == Claim && chosen:
			dst = append(dst, Op{Decrease, ID(id), 1}, Op{Query, ID(id), 0})
		case m.Kind == Refill && chosen:
			dst = append(dst, Op{PatchQuota, ID(id), 1})
		case m.Kind == Remove && chosen:
			dst = append(dst, Op{Purge, ID(id), 0})
		}
	}
	return dst
}
