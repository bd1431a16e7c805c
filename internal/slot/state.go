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

// Observation is what a QUERY showed of a slot. The zero Observation says that there is no record,
// or that its name is in the grace after an expiry (H1).
type Observation struct {
	Exists bool
	Count  uint64 // hits: the largest value, less the quota
	TTL    uint64 // in units, rounded down
}

// Observe returns the observation of a record with a quota and a TTL.
func (b *Bands) Observe(quota, ttl uint64) Observation {
	return Observation{Exists: true, Count: b.Largest - quota, TTL: ttl}
}

// State is what a record means.
type State uint8

// The states.
const (
	Absent State = iota // there is no record
	Live                // its window is open
	Free                // it is idle, and can hold the next window
	Over                // it is idle, and its window is over
	Doomed              // it is not used any more, and has to be removed
)

// State returns what a record means.
func (b *Bands) State(o Observation) State {
	switch {
	case !o.Exists:
		return Absent
	case o.TTL >= b.Margin:
		return Live
	case o.TTL < b.Doom:
		return Doomed
	case o.Count == 0:
		return Free
	default:
		return Over
	}
}

// Lookup is what the QUERYs of one call showed: usually that of the first slot, and then that of the other one.
type Lookup struct {
	First    ID
	Slots    [2]Observation
	Sent     time.Time // when the call was sent: nothing is older
	Received time.Time // when the last response arrived: nothing is newer
}

// states returns the states of both slots.
func (b *Bands) states(l Lookup) [2]State {
	return [2]State{b.State(l.Slots[A]), b.State(l.Slots[B])}
}
