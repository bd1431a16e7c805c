package slot

// Reset returns what a Reset does. A Set is a Reset, and then a hit that ignores the limit. An End
// ends it, and so does Done: there is no window.
//
// A Reset ends a window early, so others who rely on the window must have finished: the same
// window must have been open for a guard, and the other slot must have been clean for as long:
// nobody is about to free it.
func (b *Bands) Reset(h History) Move {
	x, ok := b.live(h.Last)
	if !ok || h.Last.Slots[x].Count == 0 {
		return Move{Kind: Done}
	}
	y := x.Other()
	switch b.State(h.Last.Slots[y]) {
	case Live:
		return Move{Kind: Look, At: h.Last.Received} // one of them has ended while they were read
	case Over:
		return b.retire(h, y)
	}
	if b.settled(h, x) && b.settled(h, y) {
		return Move{Kind: End, Slot: x, By: h.Last.Sent.Add(b.Guard)}
	}
	// Lookups that are less than a guard apart show that it is the same window all the time.
	at := h.Last.Sent.Add(b.Guard / 2)
	if again := b.lookAgain(h, x, y).At; again.Before(at) {
		at = again
	}
	return Move{Kind: Look, At: at}
}
