package mockserver

import "fmt"

// Hazard is something that a real server does and a client must be safe
// against. The numbers are those of the protocol document. H5, H6 and H13 have no
// switch: they are always recorded as a [Violation].
type Hazard int

const (
	// Grace (H1, on): an expired record keeps its key for 10 s, in which INSERT,
	// QUERY, UPDATE and PURGE answer failure. Off: it is removed as it expires.
	Grace Hazard = iota
	// LateExpiry (H2, off): expiry hangs on one timer that every INSERT and SET
	// sets to its own record's end, so that other records outlive their TTL.
	// Off: a record expires at its TTL's end, to the nanosecond.
	LateExpiry
	// Wrap (H3, on): INCREASE past the largest value wraps around to zero and
	// answers success. Off: it answers failure and changes nothing.
	Wrap
	// Events (H8, on): every connection is subscribed to the channel "*" and to
	// that of its own id, and what [Server.Publish] sends reaches all, though none
	// asked for it. Off: EVENTs come only from channels that were subscribed to.
	Events
	// LockUp (H12, off): the server can lock itself for good when a record
	// expires naturally. See [Server.LockedUp].
	LockUp
	// Overflow (H4, off): responses beyond 1024 that have not left, EVENTs included, are
	// dropped without a trace, so that later ones answer the wrong requests. Off: they
	// are recorded as a [Violation].
	Overflow

	hazardCount
)

// String returns the hazard's number and name, such as "H1 Grace".
func (h Hazard) String() string {
	switch h {
	case Grace:
		return "H1 Grace"
	case LateExpiry:
		return "H2 LateExpiry"
	case Wrap:
		return "H3 Wrap"
	case Events:
		return "H8 Events"
	case LockUp:
		return "H12 LockUp"
	case Overflow:
		return "H4 Overflow"
	default:
		return fmt.Sprintf("Hazard(%d)", int(h))
	}
}
