package slot

import "time"

// Window is an open window.
type Window struct {
	Slot  ID
	Count uint64
	Times
}

// Times are those of a window, by one clock.
type Times struct {
	Sent, Received time.Time // when the call was sent that showed the window, and its last response arrived
	// Until is the earliest time at which the window can end, if nobody resets it. Until then,
	// hits need no lookup (rule 12).
	Until time.Time
	// Latest is the latest time at which it can end, unless it is extended: if several clients
	// open the same window, it ends a scale after the last of them, which is less than a guard
	// after the first.
	Latest time.Time
}

// Live returns the open window, if there is one.
func (b *Bands) Live(l Lookup) (w Window, ok bool) {
	// If both are live, one has ended while the slots were read. All clients choose the same: the
	// older one.
	s, id := b.states(l), A
	if s[A] != Live || s[B] == Live && l.Slots[B].TTL < l.Slots[A].TTL {
		id = B
	}
	return b.WindowOf(id, l)
}

// WindowOf returns the window that a QUERY of a slot showed. It returns false if the slot was not live.
func (b *Bands) WindowOf(id ID, l Lookup) (w Window, ok bool) {
	o := l.Slots[id]
	if b.State(o) != Live {
		return Window{}, false
	}
	left := o.TTL - b.Margin
	end := l.Sent.Add(b.duration(left))
	return Window{id, o.Count, Times{l.Sent, l.Received, end, l.Received.Add(b.duration(left + 1))}}, true
}

// Narrow adds what an older response has shown of a window in the same slot: old. If that can be the same window, it
// ends while both say so, and w becomes the time that they share, from the later Until to the earlier Latest. Otherwise
// w stays. Narrow reports whether it certainly is the same. (If it only may be, others can have reset it and opened
// another one, which ends later: then Latest can be too early, and nothing else is wrong.)
func (w *Times) Narrow(old *Times, guard time.Duration) (same bool) {
	if old.Until.After(w.Latest) || w.Until.After(old.Latest) {
		return false
	}
	// Another window of the slot takes two Resets in between. So it opens two guards later at
	// least, and ends two guards later.
	same = w.Received.Sub(old.Sent) < guard || w.Latest.Before(old.Until.Add(2*guard))
	if old.Until.After(w.Until) {
		w.Until = old.Until
	}
	if old.Latest.Before(w.Latest) {
		w.Latest = old.Latest
	}
	return same
}

// Open reports whether a window is certainly open, if nobody has reset it.
func (w *Times) Open(now time.Time) bool { return now.Before(w.Until) }

// Join returns the action that adds hits to a window, given its slot and Until.
func (b *Bands) Join(id ID, until time.Time) Action {
	return Action{Kind: Join, Slot: id, By: until.Add(b.Guard)} // rule 2
}

// Outcome says whether the hits of a call were counted.
type Outcome uint8

// The outcomes.
const (
	Counted Outcome = iota // they have the places from Count-n+1 to Count of the window
	Full                   // the window is open, but its counter cannot hold them: not counted
	Missed                 // they were not counted: look the window up again
)

// Result returns the outcome of a Join, Open or Create that counts n hits, and the window (rule 1). Responses that come
// after Action.By say nothing. If the INSERT of a Create has failed, another client has opened the window, or the name
// is in its grace (H1).
func (b *Bands) Result(a Action, n uint64, e Effects) (Outcome, Window) {
	armed := e.Armed[a.Slot]
	if a.Kind == Create {
		if !armed {
			return Missed, Window{}
		}
		return Counted, Window{a.Slot, n, Times{e.Sent, e.Received, e.Sent.Add(b.Scale), e.Received.Add(b.Scale)}}
	}
	w, live := b.WindowOf(a.Slot, e.Lookup)
	if !live {
		return Missed, w
	}
	if armed {
		w.Until = e.Sent.Add(b.Scale)
	}
	if !e.Added[a.Slot] {
		return Full, w
	}
	return Counted, w
}
