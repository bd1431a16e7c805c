package slot

import "time"

// ReturnHits returns the action that returns hits to a window, or false if it is too late. The
// window is as the batch showed it that counted them, or that has read it since. The action goes
// out on the connection of the hits, once: if its outcome is unknown, the hits stay counted until
// the window ends (rule 11).
//
// All hits of a window can be returned, and a window can be opened with none. Its slot then looks
// free after its end, which costs the next window a guard (see spoil), and nothing else.
func (b *Bands) ReturnHits(w Window, now time.Time) (Action, bool) {
	a := b.by(Action{Kind: Return, Slot: w.Slot}, w.Sent)
	if w.Until.Before(a.By) {
		a.By = w.Until
	}
	return a, now.Before(a.By)
}
