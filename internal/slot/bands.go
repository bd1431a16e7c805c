package slot

import "time"

const (
	// maxGuard is the longest guard. A client 400 ms away can still open windows.
	maxGuard = time.Second
	// minDoom and doomGuards give a janitor and, after it, the watchers time for several
	// attempts to remove a record.
	minDoom    = 10 * time.Second
	doomGuards = 20
	// idleTime is for how long a record can be used again after the window that followed its own.
	idleTime = 25 * time.Second
	// minDoomUnits and minIdleUnits are the least of both with a coarse unit: what a TTL shows
	// can be up to a unit too little.
	minDoomUnits = 4
	minIdleUnits = 3
	// maxTTL is the longest TTL: a server adds it to its clock, and the sum must fit 64-bit
	// nanoseconds since 1970 (H13).
	maxTTL = 100 * 365 * 24 * time.Hour
)

// units are those of a server's TTLs, and the letters for them in names.
var units = [...]struct {
	unit   time.Duration
	letter byte
}{
	{time.Nanosecond, 'n'}, {time.Microsecond, 'u'}, {time.Millisecond, 'i'},
	{time.Second, 's'}, {time.Minute, 'm'}, {time.Hour, 'h'},
}

// Bands say what the TTL of a record means. They follow from the scale and the value size
// alone, so all clients agree on them. TTLs are in units, as a QUERY shows them: rounded down.
type Bands struct {
	Scale   time.Duration
	Unit    time.Duration
	Largest uint64 // the largest value of the server

	Top    uint64 // T = M + the scale: the TTL that opens a window
	Margin uint64 // M: a record whose TTL is at least this is live
	Doom   uint64 // D: one whose TTL is less than this is doomed
	Watch  uint64 // W: below this, watchers remove it, too

	// Guard bounds all moves: nothing that rests on a lookup is executed later than a guard
	// after that lookup was sent. It is at most half a scale.
	Guard time.Duration

	letter byte // for the unit
}

// BandsFor returns the bands of a scale, in the finest unit in which the scale is a whole number
// and in which the bands fit values up to largest. It returns false if there is none.
func BandsFor(scale time.Duration, largest uint64) (b Bands, ok bool) {
	if scale <= 0 || scale > maxTTL {
		return Bands{}, false
	}
	guard := min(scale/2, maxGuard)
	for _, u := range units {
		if scale%u.unit != 0 {
			continue
		}
		live := uint64(scale / u.unit)
		doom := max(ceil(max(minDoom, doomGuards*guard), u.unit), minDoomUnits)
		margin := live + doom + max(ceil(idleTime, u.unit)+1, minIdleUnits)
		top := margin + live
		if top > largest || top > uint64(maxTTL/u.unit) {
			continue
		}
		return Bands{
			Scale: scale, Unit: u.unit, Largest: largest,
			Top: top, Margin: margin, Doom: doom, Watch: doom / 2,
			Guard: guard, letter: u.letter,
		}, true
	}
	return Bands{}, false
}

// Tag returns what names of records must contain, besides the key and the scale. Clients whose
// bands differ then use different records. The first letter stands for the rules of this
// package: change it whenever bands change.
func (b *Bands) Tag(id ID) string { return string([]byte{'w', b.letter, 'A' + byte(id)}) }

// duration returns the duration of a number of units.
func (b *Bands) duration(n uint64) time.Duration { return time.Duration(n) * b.Unit }

// ceil returns how many units d is, rounded up.
func ceil(d, unit time.Duration) uint64 { return uint64((d + unit - 1) / unit) }
