package slot

// Reset returns what a client does that wants to end the open window (rule 10). It is finished
// after an End, or if there is no window, which is Done. A Set is a Reset, and then hits that
// ignore the limit.
func (b *Bands) Reset(h History) Action {
	w, ok := b.Live(h.Last)
	if !ok || w.Count == 0 {
		return Action{Kind: Done}
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
