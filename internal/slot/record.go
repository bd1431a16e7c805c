package slot

import "time"

// ID is one of the two slots of a key and scale.
type ID uint8

// The slots.
const (
	A ID = iota
	B
)

// Other returns the other slot.
func (id ID) Other() ID { return 1 - id }

// String returns "A" or "B".
func (id ID) String() string { return string('A' + rune(id)) }

// Record is what a QUERY showed of a slot. The zero Record means that there is none, or that its
// name is still in the grace after an expiry (H1).
type Record struct {
	Exists bool
	Count  uint64 // hits: what is missing from the largest value
	TTL    uint64 // in units, rounded down
}

// Record returns the record that a QUERY shows with a quota and a TTL.
func (b *Bands) Record(quota, ttl uint64) Record {
	return Record{Exists: true, Count: b.Largest - quota, TTL: ttl}
}

// State is what a record means.
type State uint8

// The states.
const (
	Absent State = iota // there is no record
	Live                // its window is open
	Free                // it is idle, and a window can be opened with it
	Over                // it is idle, and its window is over
	Doomed              // it is to be removed, and not used any more
)

// String returns the state's name.
func (s State) String() string { return [...]string{"absent", "live", "free", "over", "doomed"}[s] }

// State returns what a record means.
func (b *Bands) State(r Record) State {
	switch {
	case !r.Exists:
		return Absent
	case r.TTL >= b.Margin:
		return Live
	case r.TTL < b.Doom:
		return Doomed
	case r.Count == 0:
		return Free
	default:
		return Over
	}
}

// idle reports whether a slot is between two windows.
func idle(s State) bool { return s == Free || s == Over }

// Lookup is what one batch of a QUERY of each slot showed.
type Lookup struct {
	Slots    [2]Record
	Sent     time.Time // nothing was read before
	Received time.Time // nothing was read after
}

// states returns what the slots mean.
func (b *Bands) states(l Lookup) (a, other State) { return b.State(l.Slots[A]), b.State(l.Slots[B]) }

// live returns the slot whose window is open. If both seem to be, it is the older one: all
// clients choose the same.
func (b *Bands) live(l Lookup) (id ID, ok bool) {
	a, other := b.states(l)
	switch {
	case a == Live && other == Live && l.Slots[B].TTL < l.Slots[A].TTL:
		return B, true
	case a == Live:
		return A, true
	default:
		return B, other == Live
	}
}

// Live returns the open window, if there is one.
func (b *Bands) Live(l Lookup) (w Window, ok bool) {
	id, ok := b.live(l)
	if !ok {
		return Window{}, false
	}
	return b.window(id, l.Slots[id], l.Sent, l.Received), true
}

// Window is an open window.
type Window struct {
	Slot  ID
	Count uint64
	// Until is when the window ends at the earliest. Until then, a client believes that the
	// window is open, and hits need no lookup. (A Reset by another client ends it earlier; a
	// reply shows that.)
	Until time.Time
	// Latest is when it ends at the latest, unless another client extends it: a window that two
	// clients open at the same time ends a scale after the last of them, less than a guard later.
	Latest time.Time
}

// window returns the window of a live record that was read between two times.
func (b *Bands) window(id ID, r Record, sent, received time.Time) Window {
	left := r.TTL - b.Margin
	return Window{
		Slot: id, Count: r.Count,
		Until: sent.Add(b.duration(left)), Latest: received.Add(b.duration(left + 1)),
	}
}

// Believes reports whether hits may be added to a window without a lookup.
func (b *Bands) Believes(w Window, now time.Time) bool { return now.Before(w.Until) }

// ReplyBy returns when the replies to hits on a window must have arrived at the latest. Later
// ones do not count: the ADD and the QUERY can have been executed in different windows then.
// The next window of the same slot ends more than a scale after Until.
func (b *Bands) ReplyBy(w Window) time.Time { return w.Until.Add(b.Scale / 2) }
