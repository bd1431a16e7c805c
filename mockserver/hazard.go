package mockserver

import "fmt"

// Hazard is a behavior of a real server that a client must be safe against, and that
// [WithHazard] switches. The numbers are those of docs/internals/protocol.md. H5, H6 and H13 have
// no switch: a request that runs into one is always a [Violation].
//
// [Grace], [LateExpiry] and [LockUp] are the parts of the collector, which removes
// expired records. With all three on ([WithRealCollector]), records expire exactly as on
// a real server. Each can be switched on its own, for tests of a simpler server.
//
// The collector works on two events per record: its expiry, and the end of its grace
// 10 s later. One timer starts a run. At the time t, a run marks as dead the live records
// that expire at t or before, removes the dead records that were marked by an earlier run
// and whose grace ends at t or before, and sets the timer to the earliest event of all
// records.
type Hazard int

const (
	// Grace (H1, default on): an expired record is dead, and keeps its key until 10 s
	// after its expiry. On a dead record INSERT, SET, QUERY, GET, UPDATE and PURGE fail.
	// Off: expiry removes the record, and there is no second event.
	Grace Hazard = iota
	// LateExpiry (H2, default off): apart from a run, only these set the timer:
	//   - an INSERT, or a SET of a new key, if the new record expires no later than the
	//     first live record in table order (the new one included): to its expiry;
	//   - an UPDATE of the TTL of the record with the empty key: to its expiry. If that
	//     is past or now, a run follows at once.
	// So a record can outlive its TTL: it is found with a TTL of 0. The table order of a
	// real server is not known; here it is a pseudo-random order that depends only on the
	// keys. [Server.Set] counts as an INSERT. Off: every request sets the timer to the
	// earliest event. A record expires at the end of its TTL, to the nanosecond, or at once
	// if an UPDATE moves that into the past. But on or off, a client that parks the server with
	// an UPDATE of the TTL of the record with the empty key keeps all records from expiring
	// before that one does.
	LateExpiry
	// Wrap (H3, default on): INCREASE past the largest value wraps around to zero
	// and succeeds. Off: it fails and changes nothing.
	Wrap
	// Events (H8, default on): every connection is subscribed to the channel "*" and
	// to the channel of its own id, and [Server.Publish] reaches all connections. Off:
	// EVENTs come only from channels that the connection has subscribed to.
	Events
	// LockUp (H12, default off): the server stops responding for good, which is a
	// [Violation], if the earliest event after a run is due before the run ends: two
	// events are close to each other, or a record was marked more than 10 s late. A run
	// takes 50 µs and 0.35 µs per record. Off: another run follows.
	LockUp
	// Overflow (H4, default off): responses of a connection beyond 1024 that wait to be
	// sent, EVENTs included, are dropped silently, and later responses belong to the wrong
	// requests. Off: that is a [Violation].
	Overflow
	// GarbledList (H14, default off): for a second after the removal of a record, the
	// responses to LIST and STATS have an entry in its place that never existed. Every
	// fourth such response is malformed. Off: both show the records as they are.
	GarbledList
	// StartUp (H17, default off): in the first 40 ms after [Start] and [Server.Restart], a connection
	// that sends more than one packet of up to 8 requests is a [Violation]. A real server then runs two
	// threads, which crash it.
	StartUp
	// StrayUnit (H19, default off): the response to a QUERY or GET has a meaningless TTL unit if
	// the record was removed before the response is sent.
	StrayUnit
	// Reorder (H9, default off): the responses to requests that were read together are sent in
	// reverse order, as by a server that runs more than one thread.
	Reorder

	hazardCount
)

var hazardNames = [hazardCount]string{
	Grace:       "H1 Grace",
	LateExpiry:  "H2 LateExpiry",
	Wrap:        "H3 Wrap",
	Events:      "H8 Events",
	LockUp:      "H12 LockUp",
	Overflow:    "H4 Overflow",
	GarbledList: "H14 GarbledList",
	StartUp:     "H17 StartUp",
	StrayUnit:   "H19 StrayUnit",
	Reorder:     "H9 Reorder",
}

// Hazards returns all hazards.
func Hazards() []Hazard {
	all := make([]Hazard, hazardCount)
	for i := range all {
		all[i] = Hazard(i)
	}
	return all
}

// String returns the hazard's number and name, such as "H1 Grace".
func (h Hazard) String() string {
	if !h.known() {
		return fmt.Sprintf("Hazard(%d)", int(h))
	}
	return hazardNames[h]
}

func (h Hazard) known() bool { return h >= 0 && h < hazardCount }
