package slot

import (
	"time"
)

// ToOpen returns what a client does that has hits to count and knows no open window: it joins the one that it finds,
// or takes the next step towards opening one. The table in the comment of the package has the cases.
func (b *Bands) ToOpen(h History) Action {
	if w, ok := b.Live(h.Last); ok {
		return b.Join(w.Slot, w.Until)
	}
	s, sent := b.states(h.Last), h.Last.Sent
	switch {
	case s[A] == Absent:
		idle := s[B] == Free || s[B] == Over
		return b.by(Action{Kind: Create, Slot: A, Frees: idle}, sent)
	case s[A] == Doomed:
		return b.remove(h, [2]bool{A: true})
	case s[B] == Absent:
		return b.by(Action{Kind: Create, Slot: B, Frees: true}, sent)
	case s[B] == Doomed:
		return b.remove(h, [2]bool{B: true})
	case s[A] == Free && s[B] == Over:
		return b.open(h, A)
	case s[A] == Over && s[B] == Free:
		return b.open(h, B)
	case s[A] == Over:
		return b.retire(h, A)
	default:
		// Both are free: either they were not read at the same time, or all hits of the last window have been given
		// back. To open one of them would break rule 5.
		return b.onceStable(h, b.Scale, Action{Kind: Spoil, Slot: A}, A, B)
	}
}

// open returns the action that opens a slot. If the slot was read after the other one, the two may
// never have been like this at the same time: another client may have opened the other slot in
// between, and so have freed this one (rule 5). Then the slots are looked up in the other order.
func (b *Bands) open(h History, id ID) Action {
	if h.Last.First != id {
		return Action{Kind: Look, Slot: id, At: h.Last.Received}
	}
	return b.by(Action{Kind: Open, Slot: id}, h.Last.Sent)
}

// retire returns the next action towards a doomed slot: wait until the slot is stable, and then
// retire it (rules 7 and 8). The slot must be over.
func (b *Bands) retire(h History, id ID) Action {
	return b.onceStable(h, b.Scale, Action{Kind: Retire, Slot: id}, id)
}

// Reset returns what a client does that wants to end the open window (rule 10). It is finished if
// that is Done. Ends is the window as it was first seen, and begins as the zero Window. A Set is a Reset, and then hits
// that ignore the limit.
func (b *Bands) Reset(h History, ends *Window) Action {
	w, ok := b.Live(h.Last)
	if ok && ends.Sent.IsZero() {
		*ends = w
	}
	if !ok || w.Slot != ends.Slot {
		return Action{Kind: Done} // it has ended, and another one may have been opened since
	}
	x, y := w.Slot, w.Slot.Other()
	switch b.State(h.Last.Slots[y]) {
	case Live: // one of them has ended while the slots were read
		return Action{Kind: Look, At: h.Last.Received}
	case Over:
		return b.retire(h, y)
	}
	// End adds a hit to the count, so the slot is over, even if all others are given back within the guard that follows:
	// only the other slot can be opened next.
	return b.onceStable(h, b.Guard, Action{Kind: End, Slot: x}, x, y)
}

// remove returns the next action towards the removal of doomed slots: wait until they are stable,
// and then claim them (rules 8 and 9).
func (b *Bands) remove(h History, slots [2]bool) Action {
	var full [2]bool
	for id, o := range h.Last.Slots {
		if slots[id] && !b.stable(h, ID(id)) {
			return b.again(h, b.Scale, ID(id))
		}
		full[id] = slots[id] && o.Count == b.Largest
	}
	if full != [2]bool{} {
		// ADD 1 would fail. Several clients may do this: none can have claimed the slot.
		return b.by(Action{Kind: Refill, Slots: full}, h.Last.Sent)
	}
	return b.by(Action{Kind: Claim, Slots: slots}, h.Last.Sent)
}

// Claimed returns the removal of the slots for which a Claim has succeeded, or false if there are
// none. (The counter may hold only one ADD more: then others see the same count as the client that has claimed it.) h is
// the history that led to the claim.
func (b *Bands) Claimed(h History, a Action, e Effects) (Action, bool) {
	next := b.by(Action{Kind: Remove}, e.Sent)
	for id, o := range e.Slots {
		next.Slots[id] = a.Slots[id] && e.Added[id] && b.State(o) == Doomed && o.Count == h.Last.Slots[id].Count+1
	}
	return next, next.Slots != [2]bool{}
}

// GiveBack returns the action that gives hits back to a window, or false if it is too late. The
// window is as the call showed it that counted them, or that has read it since. The action goes
// out on the connection of the hits, once: if its outcome is unknown, the hits stay counted until
// the window ends (rule 11).
//
// All hits of a window can be given back, and a window can be opened with none. Its slot then looks
// free after its end, which costs the next window a guard (see ToOpen), and nothing else.
func (b *Bands) GiveBack(w Window, now time.Time) (Action, bool) {
	a := b.by(Action{Kind: GiveBack, Slot: w.Slot}, w.Sent)
	if w.Until.Before(a.By) {
		a.By = w.Until
	}
	return a, now.Before(a.By)
}
