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
	if a, other := b.states(h.Last); a == Absent && other == Absent {
		return Move{Kind: Done}
	}
	return Move{Kind: Look, At: b.NextVisit(h.Last, below)}
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

// remove returns the next move on the way to removing slots that nobody can open: wait until they
// are settled, claim them, and purge what was claimed. To remove a slot that is not doomed, both
// must be settled.
func (b *Bands) remove(h History, which [2]bool) Move {
	wait := which
	exhausted := [2]bool{}
	for id, r := range h.Last.Slots {
		if which[id] && b.State(r) != Doomed {
			wait = [2]bool{true, true}
		}
		exhausted[id] = which[id] && r.Count == b.Largest
	}
	for id := range wait {
		if wait[id] && !b.settled(h, ID(id)) {
			return b.lookAgain(h, ID(id))
		}
	}
	by := h.Last.Sent.Add(b.Guard)
	if exhausted != [2]bool{} {
		return Move{Kind: Refill, Which: exhausted, By: by}
	}
	return Move{Kind: Claim, Which: which, By: by}
}

// Claimed returns the removal of the slots that a claim has got. claim is what the QUERYs of the
// Claim showed. A slot is claimed if its count is exactly one more than before, and it is as idle
// as before; so of several claims at most one succeeds. It returns false if none is claimed.
func (b *Bands) Claimed(h History, m Move, claim Lookup) (Move, bool) {
	next := Move{Kind: Remove, By: claim.Sent.Add(b.Guard)}
	for id, old := range h.Last.Slots {
		now, other := claim.Slots[id], 1-id
		ok := m.Which[id] && now.Exists && now.Count == old.Count+1
		if b.State(old) == Doomed {
			ok = ok && b.State(now) == Doomed
		} else {
			ok = ok && b.State(now) == Over && b.State(claim.Slots[other]) == b.State(h.Last.Slots[other])
		}
		next.Which[id] = ok
	}
	return next, next.Which != [2]bool{}
}

// removal appends the requests of a Refill, Claim or Remove.
func (b *Bands) removal(dst []Op, m Move) []Op {
	for id, chosen := range m.Which {
		switch {
		case m.Kind == Claim && chosen:
			dst = append(dst, Op{Decrease, ID(id), 1}, Op{Query, ID(id), 0})
		case m.Kind == Claim:
			dst = append(dst, Op{Query, ID(id), 0})
		case m.Kind == Refill && chosen:
			dst = append(dst, Op{PatchQuota, ID(id), 1})
		case m.Kind == Remove && chosen:
			dst = append(dst, Op{Purge, ID(id), 0})
		}
	}
	return dst
}
