package slot

import "time"

// Clean returns what a janitor, a watcher or a sweeper does: it removes doomed slots whose TTL is
// below a bound, and frees a slot that is over beside an open window. If there is nothing to do
// yet, it returns a Look at the time of the next cleaning, which may be far away.
//
// The bound is Bands.Doom for the janitor, which is the client that opened the last window, and
// Bands.Watch for watchers, which are clients that opened an earlier one, and for sweepers. See
// Below.
func (b *Bands) Clean(h History, below uint64) Action {
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
	if w, ok := b.Untidy(h.Last); ok { // rule 14
		return b.onceStable(h, b.Scale, Action{Kind: Tidy, Slot: w.Slot}, w.Slot.Other())
	}
	return Action{Kind: Look, At: b.NextCleaning(h.Last, below)}
}

// Below returns the bound of Clean for a client that has not acted since a time, at which the responses to
// its last action had arrived. If a TTL is longer than a window of that time can have left, another client
// has opened one since.
func (b *Bands) Below(l Lookup, acted time.Time) uint64 {
	most := b.duration(b.Top) - l.Sent.Sub(acted)
	for _, o := range l.Slots {
		if o.Exists && b.duration(o.TTL) > most {
			return b.Watch
		}
	}
	return b.Doom
}

// NextCleaning returns when the first TTL is certainly below a bound, or the zero time if there is
// no record. It has to be found again after each action that sets a TTL, which are Open, Create,
// Tidy, Retire and End, even if it is not known whether that was executed.
func (b *Bands) NextCleaning(l Lookup, below uint64) (at time.Time) {
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

// Untidy returns the open window beside a slot that is over: hits have arrived late, or the client
// that opened the window has died. Clean the slots soon then. It returns false if there is none, or
// if too little time is left for a Tidy, which must be executed before the window ends.
func (b *Bands) Untidy(l Lookup) (Window, bool) {
	w, ok := b.Live(l)
	return w, ok && b.State(l.Slots[w.Slot.Other()]) == Over && w.Until.After(l.Received.Add(2*b.Guard))
}

// Discard returns what a client does that closes and leaves no idle records: it makes free slots
// over, retires those that are over, and removes the doomed ones. That takes two guards. If a
// window is open, both slots stay.
func (b *Bands) Discard(h History) Action {
	s := b.states(h.Last)
	if s[A] == Live || s[B] == Live || s == [2]State{Absent, Absent} {
		return Action{Kind: Done}
	}
	for id, state := range s {
		if state == Free {
			return b.by(Action{Kind: Spoil, Slot: ID(id)}, h.Last.Sent)
		}
	}
	for id, state := range s {
		if state == Over {
			return b.retire(h, ID(id))
		}
	}
	return b.remove(h, [2]bool{s[A] == Doomed, s[B] == Doomed})
}
