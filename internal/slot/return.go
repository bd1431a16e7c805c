package slot

import "time"

// ReturnHits returns the action that returns hits to a window, or false if it is too late. Sent is
// when the batch was sent that counted them. The action goes out on the connection of that batch,
// once: if its outcome is unknown, the hits stay counted until the window ends (rule 11).
//
// If all hits of a window are returned, its slot looks free after its end, and the next window
// waits for a guard (see spoil). So the hit with place 1 should not be returned.
func (b *Bands) ReturnHits(w Window, sent, now time.Time) (Action, bool) {
	a := b.by(Action{Kind: Return, Slot: w.Slot}, sent)
	if w.Until.Before(a.By) {
		a.By = w.Until
	}
	return a, now.Before(a.By)
}
