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
