package slot

import (
	"time"
)

const (
	// MaxGuard is the longest guard. With it, a client 400 ms away can open windows.
	MaxGuard = time.Second
	// minDoom and doomGuards leave a janitor, and then the watchers, time for several attempts to
	// remove a record before it expires (H12).
	minDoom    = 10 * time.Second
	doomGuards = 20
	// fullDoom is how long that time is if it fits. In half of it, sweepers look at each record
	// three times.
	fullDoom = 90 * time.Second
	// idleTime is for how long the records of a key without hits can be used again.
	idleTime = 25 * time.Second
	// minDoomUnits and minIdleUnits are the least of both if the unit is coarse. A TTL can show up
	// to a unit too little.
	minDoomUnits = 4
	minIdleUnits = 3
	// maxTTL is the longest TTL. A server adds it to its clock, and the sum must fit 64-bit
	// nanoseconds since 1970 (H13).
	maxTTL = 100 * 365 * 24 * time.Hour
)

// units are the units of TTLs, with their letters in names.
var units = [...]struct {
	unit   time.Duration
	letter byte
}{
	{time.Nanosecond, 'n'}, {time.Microsecond, 'u'}, {time.Millisecond, 'i'},
	{time.Second, 's'}, {time.Minute, 'm'}, {time.Hour, 'h'},
}

// Bands say what the TTL of a record means. They follow from the scale and the value size alone,
// so all clients agree on them. They are the same whether a server is parked or not. TTLs are in
// units.
type Bands struct {
	Scale   time.Duration
	Unit    time.Duration
	Largest uint64 // the largest value of the server

	Top    uint64 // T: the TTL that opens a window; one scale more than M
	Margin uint64 // M: with at least this TTL, a record is live
	Doom   uint64 // D: with less than this, it is doomed
	Watch  uint64 // W: with less than this, watchers remove it

	// Guard bounds all actions (rule 3). It is at most half a scale.
	Guard time.Duration

	letter byte // of the unit
}

// BandsFor returns the bands of a scale on a server with a largest value, in the finest unit in
// which the scale is a whole number and the bands fit. It returns false if there is none; then
// api.SmallestSize finds the value size that would do. About twice the scale and 45 s must
// fit.
func BandsFor(scale time.Duration, largest uint64) (b Bands, ok bool) {
	if scale <= 0 || scale > maxTTL {
		return Bands{}, false
	}
	guard := min(scale/2, MaxGuard)
	for _, u := range units {
		if scale%u.unit != 0 {
			continue
		}
		live := uint64(scale / u.unit)
		doom := max(ceil(max(minDoom, doomGuards*guard), u.unit), minDoomUnits)
		idle := max(ceil(idleTime, u.unit)+1, minIdleUnits)
		// While one slot holds the next window, the other one must not become doomed: that is
		// why M contains a scale.
		margin := doom + idle + live
		top := margin + live
		most := min(largest, uint64(maxTTL/u.unit))
		if top > most {
			continue
		}
		more := min(max(ceil(fullDoom, u.unit), doom)-doom, most-top)
		doom += more
		return Bands{
			Scale: scale, Unit: u.unit, Largest: largest,
			Top: top + more, Margin: margin + more, Doom: doom, Watch: doom / 2,
			Guard: guard, letter: u.letter,
		}, true
	}
	return Bands{}, false
}

// Tag returns the part of a record's name that tells slots and bands apart. Clients whose bands
// differ use different records. The first letter stands for the rules of this package: it has to
// change with the bands.
func (b *Bands) Tag(id ID) string { return string([]byte{'w', b.letter, 'A' + byte(id)}) }

// duration returns the duration of a number of units.
func (b *Bands) duration(n uint64) time.Duration { return time.Duration(n) * b.Unit }

// ceil returns how many units d is, rounded up.
func ceil(d, unit time.Duration) uint64 { return uint64((d + unit - 1) / unit) }

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
