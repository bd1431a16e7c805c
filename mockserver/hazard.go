package mockserver

import "fmt"

// Hazard is a behavior of the real server that a client must be safe against and
// that [WithHazard] switches. The numbers are those of docs/protocol.md.
//
// H5, H6 and H13 have no switch: a request that runs into one is always recorded
// as a [Violation].
//
// [Grace], [LateExpiry] and [LockUp] are the three parts of the server's collector,
// which removes expired records. With all three on, the mock server follows the
// collector of the real server exactly; see [AsReal]. Each part can be switched off
// on its own, for tests that want a simpler server.
type Hazard int

const (
	// Grace (H1, default on): an expired record keeps its key for 10 s. In that
	// time INSERT, SET, QUERY, GET, UPDATE and PURGE of the key fail. Off: the key is
	// free as soon as the record has expired.
	Grace Hazard = iota
	// LateExpiry (H2, default off): one timer drives all expiries. An INSERT or a
	// SET can postpone it, so that records outlive their TTL. Off: every record
	// expires at the end of its TTL, to the nanosecond.
	LateExpiry
	// Wrap (H3, default on): INCREASE past the largest value wraps around to zero
	// and succeeds. Off: it fails and changes nothing.
	Wrap
	// Events (H8, default on): every connection is subscribed to the channel "*" and
	// to the channel of its own id, and [Server.Publish] reaches all connections. Off:
	// EVENTs come only from channels that the connection has subscribed to.
	Events
	// LockUp (H12, default off): the server can stop answering for good when a
	// record expires by itself. It is a [Violation]; see [Server.LockedUp]. Off:
	// expiry does no harm.
	LockUp
	// Overflow (H4, default off): if more than 1024 responses of a connection wait to
	// be sent, EVENTs included, the rest is dropped silently, and later responses
	// answer the wrong requests. Off: it is a [Violation].
	Overflow
	// GarbledList (H14, default off): a LIST or STATS that follows the removal of
	// records contains entries that never existed, and now and then a malformed
	// frame. Off: both describe the store as it is.
	GarbledList

	hazardCount
)

// hazards are the names and defaults of all hazards.
var hazards = [hazardCount]struct {
	name string
	on   bool
}{
	Grace:       {"H1 Grace", true},
	LateExpiry:  {"H2 LateExpiry", false},
	Wrap:        {"H3 Wrap", true},
	Events:      {"H8 Events", true},
	LockUp:      {"H12 LockUp", false},
	Overflow:    {"H4 Overflow", false},
	GarbledList: {"H14 GarbledList", false},
}

// Hazards returns all hazards.
func Hazards() []Hazard {
	all := make([]Hazard, hazardCount)
	for i := range all {
		all[i] = Hazard(i)
	}
	return all
}

// Default reports whether the hazard is on unless [WithHazard] says otherwise. It is
// false for an unknown hazard.
func (h Hazard) Default() bool { return h.known() && hazards[h].on }

// String returns the hazard's number and name, such as "H1 Grace".
func (h Hazard) String() string {
	if !h.known() {
		return fmt.Sprintf("Hazard(%d)", int(h))
	}
	return hazards[h].name
}

func (h Hazard) known() bool { return h >= 0 && h < hazardCount }
