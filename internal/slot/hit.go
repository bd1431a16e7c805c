package slot

import "time"

// Hit returns what a hit does that knows no open window.
func (b *Bands) Hit(h History) Move {
	l := h.Last
	if w, ok := b.Live(l); ok {
		return Move{Kind: Join, Slot: w.Slot, By: b.ReplyBy(w)}
	}
	first, second := b.states(l)
	by := l.Sent.Add(b.Guard)
	switch {
	case first == Free && second != Free:
		return Move{Kind: Open, Slot: A, Frees: second == Over, By: by}
	case second == Free && first != Free:
		return Move{Kind: Open, Slot: B, Frees: first == Over, By: by}
	case first == Absent && second == Doomed && !b.settled(h, B):
		return b.lookAgain(h, B) // until a moment ago, B could be opened
	case first == Absent:
		return Move{Kind: Create, Slot: A, Frees: second == Over, By: by}
	case first == Over && second == Absent:
		return Move{Kind: Create, Slot: B, Frees: true, By: by}
	case first == Over && second == Doomed:
		return b.remove(h, [2]bool{B: true})
	default:
		return b.remove(h, [2]bool{A: true}) // A is doomed, or both are over, or both are free
	}
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

// Tidy returns the second packet of a Create, if there is one: it frees the other slot.
// inserted says that the INSERT succeeded. If it did not, somebody else has opened the window,
// and the packet would be late.
func (b *Bands) Tidy(m Move, inserted bool, sent time.Time) (Move, bool) {
	if m.Kind != Create || !m.Frees || !inserted {
		return Move{}, false
	}
	return Move{Kind: Tidy, Slot: m.Slot, By: sent.Add(b.Guard)}, true
}

// Outcome is what became of a batch of hits.
type Outcome uint8

// The outcomes.
const (
	Counted   Outcome = iota // the hits have the places Count-n+1 to Count of the window
	Exhausted                // the window is open, but its count cannot hold the hits: not counted
	Lost                     // the window is not open: look again
)

// Result returns what became of n hits. added is the status of the DECREASE, r what the QUERY
// showed, and armed says that this very batch has set the TTL to T: its PATCH or INSERT has
// succeeded.
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
