package slot

import "time"

// Return returns the move that gives hits back to a window, of which the batch that counted them
// was sent at some time. It goes out on the connection of that batch, once. If its outcome is
// unknown, it is not repeated. It returns false if it is too late.
func (b *Bands) Return(w Window, sent, now time.Time) (Move, bool) {
	by := sent.Add(b.Guard)
	if w.Until.Before(by) {
		by = w.Until
	}
	return Move{Kind: GiveBack, Slot: w.Slot, By: by}, now.Before(by)
}

// Undo returns the move that makes a slot free again that n hits have made over: they came after
// the end of the window, when the slot had been freed already. Otherwise nobody could open it,
// and the next window would need a removal. Like all that is given back, it goes out once, on the
// connection of the hits.
func (b *Bands) Undo(m Move, added bool, n uint64, r Record, sent, now time.Time) (Move, bool) {
	by := sent.Add(b.Guard)
	ok := n > 0 && added && b.State(r) == Over && r.Count == n && now.Before(by)
	return Move{Kind: GiveBack, Slot: m.Slot, By: by}, ok
}
