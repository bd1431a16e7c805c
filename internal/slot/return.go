package slot

import "time"

// ReturnHits returns the action that returns hits to a window, or false if it is too late. Sent is
// when the batch was sent that counted them. The action goes out on the connection of that batch,
// once: if its outcome is unknown, the hits stay counted until the window ends (rule 11).
//
// All hits of a window can be returned, and a window can be opened with none. Its slot then looks
// free after its end, which costs the next window a guard (see spoil), and nothing else.
func (b *Bands) ReturnHits(w Window, sent, now time.Time) (Action, bool) {
	a := b.by(Action{Kind: Return, Slot: w.Slot}, sent)
	if w.Until.Before(a.By) {
		a.By = w.Until
	}
	return a, now.Before(a.By)
}
