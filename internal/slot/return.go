package slot

import "time"

// ReturnHits returns the action that returns hits to a window, which a batch counted that was
// sent at some time. It goes out on the connection of that batch, once: if its outcome is unknown,
// the hits are lost until the window ends (rule 11). It returns false if it is too late.
//
// If all hits of a window are returned, its slot looks free after its end, and the next window
// waits for a guard (see spoil). Whoever has place 1 should keep it.
func (b *Bands) ReturnHits(w Window, sent, now time.Time) (Action, bool) {
	a := b.by(Action{Kind: Return, Slot: w.Slot}, sent)
	if w.Until.Before(a.By) {
		a.By = w.Until
	}
	return a, now.Before(a.By)
}
