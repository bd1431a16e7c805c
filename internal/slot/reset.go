package slot

// Ending is what a Reset has found so far. It begins as the zero Ending.
type Ending struct {
	Found  bool   // there is a window to end
	Window Window // as it was first seen
}

// Reset returns what a client does that wants to end the open window (rule 10). It is finished if
// that is Done. A Set is a Reset, and then hits that ignore the limit.
func (b *Bands) Reset(h History, e *Ending) Action {
	w, ok := b.Live(h.Last)
	if ok && !e.Found {
		*e = Ending{true, w}
	}
	if !ok || w.Slot != e.Window.Slot {
		return Action{Kind: Done} // it has ended, and another one may have been opened since
	}
	if w.Count == 0 {
		// Its slot would look free after an End. The hit that is added ends with the window.
		return b.by(Action{Kind: Spoil, Slot: w.Slot}, h.Last.Sent)
	}
	x, y := w.Slot, w.Slot.Other()
	switch b.State(h.Last.Slots[y]) {
	case Live: // one of them has ended while the slots were read
		return Action{Kind: Again, At: h.Last.Received}
	case Over:
		return b.retire(h, y)
	}
	if !b.stable(h, x) || !b.stable(h, y) {
		return b.again(h, b.Guard, x, y)
	}
	// End keeps the count, so the slot is over, and only the other one can be opened next.
	return b.by(Action{Kind: End, Slot: x}, h.Last.Sent)
}
