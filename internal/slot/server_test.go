package slot

import (
	"fmt"
	"time"
)

// endless is the violation of a run that does not end.
const endless = "endless"

// grace is for how long a server that is not parked keeps the name of an expired record (H1).
const grace = 10 * time.Second

// record is a record of the simulated server.
type record struct {
	exists  bool
	quota   uint64
	expires time.Duration
	counted bool // its expiry has been counted
	life    int  // changes when hits are forgotten
}

// opened is a window, as the server sees it.
type opened struct {
	id     int
	slot   ID
	start  time.Duration
	count  uint64 // hits counted
	held   uint64 // hits granted and not returned
	places map[uint64]bool
}

// server is a simulated server with the two records of one key and scale. It knows which
// window is really open.
type server struct {
	*world
	records  [2]record
	open     *opened // the open window
	last     *opened // the window before
	cut      bool    // last ended early: by a Reset or a restart
	windows  int
	empty    int // windows that ended with a count of 0
	epoch    int // counts restarts
	expired  int // records that expired
	requests int
	lives    int
}

// advance applies what time has done to the records.
func (s *server) advance() {
	for id := range s.records {
		r := &s.records[id]
		if !r.exists || s.now < r.expires {
			continue
		}
		if !r.counted {
			r.counted = true
			s.expired++
			s.log("%v expires", ID(id))
		}
		if !s.parked && s.now >= r.expires+max(grace, s.late) {
			*r = record{}
		}
	}
	if w := s.open; w != nil && s.state(w.slot) != Live {
		s.end(false, "ends")
	}
}

// usable reports whether requests find a record.
func (s *server) usable(id ID) bool {
	r := &s.records[id]
	return r.exists && (s.parked || s.now < r.expires+s.late)
}

// read returns what a QUERY shows.
func (s *server) read(id ID) Observation {
	if !s.usable(id) {
		return Observation{}
	}
	left := max(0, s.records[id].expires-s.now)
	return s.bands.Observe(s.records[id].quota, uint64(left/s.bands.Unit))
}

func (s *server) state(id ID) State { return s.bands.State(s.read(id)) }

// end ends the open window.
func (s *server) end(cut bool, how string) {
	s.log("window %d on %v %s: %d counted, %d held", s.open.id, s.open.slot, how, s.open.count, s.open.held)
	if s.open.count == 0 && !cut {
		s.empty++
	}
	if ends := s.ends(); !cut && ends-s.open.start > s.bands.Scale+s.bands.Guard {
		s.fail("window lasts %v", ends-s.open.start)
	}
	s.last, s.open, s.cut = s.open, nil, cut
}

// begin opens a window. No other may be open, and the last one must have begun a scale ago.
func (s *server) begin(id ID) {
	if s.open != nil {
		s.fail("window on %v opens while one on %v is open", id, s.open.slot)
		return
	}
	if s.last != nil && !s.cut && s.now-s.last.start < s.bands.Scale {
		s.fail("window on %v opens %v after the last one", id, s.now-s.last.start)
		return
	}
	s.windows++
	s.open = &opened{id: s.windows, slot: id, start: s.now, count: s.read(id).Count, places: map[uint64]bool{}}
	s.log("window %d on %v opens", s.windows, id)
}

// ends returns when the open window ends.
func (s *server) ends() time.Duration {
	return s.records[s.open.slot].expires - s.bands.duration(s.bands.Margin)
}

// restart loses all records, and all connections.
func (s *server) restart() {
	s.advance()
	s.log("server restarts")
	if s.open != nil {
		s.end(true, "is lost")
	}
	s.cut = true
	s.records = [2]record{}
	s.epoch++
}

// response is the response to a request.
type response struct {
	ok     bool
	record Observation // of a QUERY
	window *opened     // open on the slot when the request was executed
	life   int         // of the record
}

// execute executes a request.
func (s *server) execute(client string, action Action, op Request) response {
	if s.requests++; s.requests > 200000 {
		s.fail(endless)
	}
	s.advance()
	id := op.Slot
	r := &s.records[id]
	was := s.state(id)
	rep := response{ok: s.usable(id)}
	switch {
	case op.Op == Insert:
		rep.ok = !r.exists
		if rep.ok {
			s.lives++
			*r = record{exists: true, quota: op.Value, expires: s.now + s.bands.duration(s.bands.Top), life: s.lives}
		}
	case !rep.ok || op.Op == Query:
	case op.Op == Decrease:
		if rep.ok = r.quota >= op.Value; rep.ok {
			r.quota -= op.Value
		}
	case op.Op == Increase:
		r.quota = (r.quota + op.Value) & s.bands.Largest
	case op.Op == PatchQuota:
		s.lives++
		r.quota, r.life = op.Value, s.lives
	case op.Op == PatchTTL:
		r.expires = s.now + s.bands.duration(op.Value)
		r.counted = false
	case op.Op == Purge:
		*r = record{}
	}
	rep.record, rep.life = s.read(id), r.life
	if s.tracing {
		s.log("%s %v: %s %d of %v: %v, %s", client, action.Kind, [...]string{"QUERY", "INSERT", "ADD", "RETURN", "COUNT", "TTL", "PURGE"}[op.Op],
			op.Value, id, rep.ok, s.format(id))
	}
	s.check(id, was, action, op)
	if s.open != nil && s.open.slot == id {
		rep.window = s.open
	}
	return rep
}

// check compares a slot before and after a request.
func (s *server) check(id ID, was State, action Action, op Request) {
	is := s.state(id)
	switch {
	case was == Live && is != Live && action.Kind == End:
		s.end(true, "is reset")
	case was == Live && is != Live:
		s.fail("%v ends an open window", action.Kind)
	case was != Live && is == Live:
		s.begin(id)
	case is == Live && op.Op == PatchQuota:
		s.fail("%v changes the count of an open window", action.Kind)
	case is == Live:
		s.open.count = s.read(id).Count
		if s.open.held > s.open.count {
			s.fail("count is %d, but %d are held", s.open.count, s.open.held)
		}
	}
}

// format formats a slot.
func (s *server) format(id ID) string {
	r := s.read(id)
	if !r.Exists {
		return "absent"
	}
	return fmt.Sprintf("%v, count %d, TTL %d", s.bands.State(r), r.Count, r.TTL)
}
