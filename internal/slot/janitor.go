package slot

import "time"

// Visit returns what a janitor, a watcher or a sweeper does: it removes doomed slots whose TTL is
// below a bound, and frees a slot that is over beside an open window. If there is nothing to do
// yet, it returns an Again at the time of the next visit, which may be far away.
//
// The bound is Bands.Doom for a janitor, which is the client that opened the last window, and
// Bands.Watch for watchers, which are clients that opened one before. See Below.
func (b *Bands) Visit(h History, below uint64) Action {
	s := b.states(h.Last)
	if s == [2]State{Absent, Absent} {
		return Action{Kind: Done}
	}
	var slots [2]bool
	for id, o := range h.Last.Slots {
		slots[id] = s[id] == Doomed && o.TTL < below
	}
	if slots != [2]bool{} {
		return b.remove(h, slots)
	}
	if w, ok := b.untidy(h.Last); ok {
		return b.tidy(h, w)
	}
	return Action{Kind: Again, At: b.NextVisit(h.Last, below)}
}

// Below returns the bound for the visits of a client that has opened windows until a time, which
// is not before the reply. A TTL that is longer than a window that old can have says that another
// client has opened one since.
func (b *Bands) Below(l Lookup, opened time.Time) uint64 {
	most := b.duration(b.Top) - l.Sent.Sub(opened)
	for _, o := range l.Slots {
		if o.Exists && b.duration(o.TTL) > most {
			return b.Watch
		}
	}
	return b.Doom
}

// NextVisit returns when the first TTL is certainly below a bound. Visit then, after each action
// that sets a TTL: Open, Create, Tidy, Retire and End, whatever became of it.
func (b *Bands) NextVisit(l Lookup, below uint64) (at time.Time) {
	for _, o := range l.Slots {
		if !o.Exists {
			continue
		}
		t := l.Received
		if o.TTL >= below {
			t = t.Add(b.duration(o.TTL + 1 - below))
		}
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// Untidy reports whether a lookup shows a slot that is over beside an open window. Hits have
// arrived late, or whoever opened the window has died. Visit soon then.
func (b *Bands) Untidy(l Lookup) bool {
	_, ok := b.untidy(l)
	return ok
}

// untidy returns the open window beside a slot that is over, if there is time for a Tidy: it must
// have been executed before the window ends.
func (b *Bands) untidy(l Lookup) (Window, bool) {
	w, ok := b.Live(l)
	return w, ok && b.State(l.Slots[w.Slot.Other()]) == Over && w.Until.After(l.Received.Add(2*b.Guard))
}

// tidy returns the next action on the way to a free slot beside an open window (rule 14).
func (b *Bands) tidy(h History, w Window) Action {
	if y := w.Slot.Other(); !b.stable(h, y) {
		return b.again(h, b.Scale, y)
	}
	return b.by(Action{Kind: Tidy, Slot: w.Slot}, h.Last.Sent)
}

// Discard returns what a client does that wants to leave no records when it closes: everything
// that is idle is made over, retired and removed, which takes two guards. An open window and the
// slot beside it stay.
func (b *Bands) Discard(h History) Action {
	s := b.states(h.Last)
	if s[A] == Live || s[B] == Live || s == [2]State{Absent, Absent} {
		return Action{Kind: Done}
	}
	for id, state := range s {
		switch state {
		case Free:
			return b.by(Action{Kind: Spoil, Slot: ID(id)}, h.Last.Sent)
		case Over:
			return b.retire(h, ID(id))
		}
	}
	return b.remove(h, [2]bool{s[A] == Doomed, s[B] == Doomed})
}
