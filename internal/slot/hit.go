package slot

import "time"

// Hit returns what a hit does that knows no open window.
func (b *Bands) Hit(h History) Move {
	l := h.Last
	if w, ok := b.Live(l); ok {
		return Move{Kind: Join, Slot: w.Slot, By: b.ReplyBy(w)}
	}
	by := l.Sent.Add(b.Guard)
	first, second := b.states(l)
	switch {
	case first == Absent:
		return Move{Kind: Create, Slot: A, Frees: idle(second), By: by}
	case first == Doomed:
		return b.remove(h, [2]bool{A: true})
	case second == Absent:
		return Move{Kind: Create, Slot: B, Frees: true, By: by}
	case second == Doomed:
		return b.remove(h, [2]bool{B: true})
	case first == Free && second == Over:
		return Move{Kind: Open, Slot: A, By: by}
	case first == Over && second == Free:
		return Move{Kind: Open, Slot: B, By: by}
	case first == Over:
		return b.retire(h, A)
	default:
		return b.spoil(h)
	}
}

// spoil returns the move for two free slots: all hits of the last window have been given back,
// or the slots were not read at one time.
func (b *Bands) spoil(h History) Move {
	if !b.settled(h, A) || !b.settled(h, B) {
		return b.lookAgain(h, A, B)
	}
	return Move{Kind: Spoil, Slot: A, By: h.Last.Sent.Add(b.Guard)}
}

// lookAgain returns the lookup that may show that slots are settled.
func (b *Bands) lookAgain(h History, ids ...ID) Move {
	var at time.Time
	for _, id := range ids {
		if t := h.Since[id].Add(b.Guard); t.After(at) {
			at = t
		}
	}
	return Move{Kind: Look, At: at}
}

// Outcome is what became of a batch of hits.
type Outcome uint8

// The outcomes.
const (
	Counted   Outcome = iota // the hits have the places Count-n+1 to Count of the window
	Exhausted                // the window is open, but its count cannot hold the hits: not counted
	Lost                     // the window is not open: look again
)

// Created returns the window that a Create has opened with n hits: all its places are theirs. If
// the INSERT failed, somebody else has opened the window, or the name is in its grace (H1).
func (b *Bands) Created(m Move, inserted bool, n uint64, sent, received time.Time) (Outcome, Window) {
	if !inserted {
		return Lost, Window{}
	}
	return Counted, Window{Slot: m.Slot, Count: n, Until: sent.Add(b.Scale), Latest: received.Add(b.Scale)}
}

// Result returns what became of the hits of a Join or an Open. armed says that this very batch
// has set the TTL to T, added is the status of the DECREASE, and r is what the QUERY showed.
func (b *Bands) Result(m Move, armed, added bool, r Record, sent, received time.Time) (Outcome, Window) {
	if b.State(r) != Live {
		return Lost, Window{}
	}
	w := b.window(m.Slot, r, sent, received)
	if armed {
		w.Until = sent.Add(b.Scale)
	}
	if !added {
		return Exhausted, w
	}
	return Counted, w
}
