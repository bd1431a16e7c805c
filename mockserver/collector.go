package mockserver

import (
	"container/heap"
	"fmt"
	"time"
)

// graceTime is how long after its expiry a dead record is removed (H1).
const graceTime = uint64(10 * time.Second)

// runTime returns how long a run of the collector takes with so many records (H12), as
// measured on a real server.
func runTime(records int) uint64 {
	return uint64(50*time.Microsecond) + uint64(350*time.Nanosecond)*uint64(records)
}

// collector removes expired records, as a real server does. Two things are due for a
// record: its expiry, after which it is dead, and 10 s later the end of its grace, when
// it is removed. One timer starts a run of the collector.
//
// What sets the timer:
//   - a new record, if it expires no later than the first live record in table order,
//     which can be the new one: to the new record's expiry;
//   - a change of the TTL of the record with the empty key, if that is live: to its
//     expiry;
//   - a run: to the earliest event of all records.
//
// Nothing else does: not another change of a TTL, not a removal.
//
// A run at the time t
//   - marks as dead the live records that expire at t or before;
//   - removes the dead records that were marked by an earlier run and whose grace ends
//     at t or before;
//   - sets the timer. If the earliest event is due before the run ends, the server locks
//     up for good.
//
// The fields grace, late and lockUp switch parts of this off; see [Hazard]. Without late, a change of
// the TTL of the record with the empty key holds the timer until that record ends.
type collector struct {
	grace   bool // dead records are kept for a grace; if not, expiry removes a record
	late    bool // only the above sets the timer; if not, it is set to the earliest event, or held
	lockUp  bool // the server can lock up
	timer   event
	events  recordHeap // all records, by their next event
	first   *record    // the first live record in table order; nil: not known
	parking *record    // holds the timer at its expiry; nil: none; always nil if late
	expired int        // records that have expired
	locked  bool
	report  func(text string) // called when the server locks up
}

// event is what is due next for a record. The zero event is none.
type event struct {
	at   uint64 // ns since 1970; not 0
	key  string
	dead bool // it is the end of a grace; if not, an expiry
}

// String describes the event, such as `the expiry of "k"`.
func (e event) String() string {
	what := "expiry"
	if e.dead {
		what = "end of the grace"
	}
	return fmt.Sprintf("the %s of %q", what, e.key)
}

// due returns when the record's next event is due.
func (r *record) due() uint64 {
	if r.dead {
		return r.expires + graceTime
	}
	return r.expires
}

// next returns the record's next event.
func (r *record) next() event { return event{max(r.due(), 1), r.key, r.dead} }

// added is called for each new record.
func (c *collector) added(r *record) {
	c.events.add(r)
	if !c.late {
		c.rearm()
		return
	}
	r.order = tableOrder(r.key)
	if c.first == nil {
		c.findFirst()
	} else if before(r, c.first) {
		c.first = r
	}
	if r.expires <= c.first.expires {
		c.timer = r.next()
	}
}

// findFirst finds the first live record in table order. Of many records it is seldom the one that is removed, so this is
// seldom called.
func (c *collector) findFirst() {
	for _, r := range c.events.records {
		if !r.dead && (c.first == nil || before(r, c.first)) {
			c.first = r
		}
	}
}

// removed is called for each record that is removed other than by a run.
func (c *collector) removed(r *record) {
	c.events.remove(r)
	c.ended(r)
	if !c.late {
		c.rearm()
	}
}

// changed is called for each live record that has a new expiry. A SET of an existing buffer
// does not set the timer even if its key is empty.
func (c *collector) changed(r *record, bySet bool) {
	c.events.fix(r)
	sets := r.key == "" && !bySet
	switch {
	case c.late && sets:
		c.timer = r.next()
	case !c.late:
		if sets {
			c.parking = r
		}
		c.rearm()
	}
}

// ended is called for each record that has expired or is removed.
func (c *collector) ended(r *record) {
	if c.parking == r {
		c.parking = nil
	}
	if c.first == r {
		c.first = nil
	}
}

// restart unlocks the server, whose timer is that of a run.
func (c *collector) restart() {
	c.locked = false
	c.parking = nil
	c.first = nil
	c.rearm()
}

// rearm sets the timer to the earliest event, or to the expiry of the record that holds it.
func (c *collector) rearm() {
	c.timer = event{}
	switch r := c.events.first(); {
	case c.parking != nil:
		c.timer = c.parking.next()
	case r != nil:
		c.timer = r.next()
	}
}

// run runs the collector at time t. It calls remove for each record to be removed from
// the store.
func (c *collector) run(t uint64, remove func(*record)) {
	records, cause := len(c.events.records), c.timer
	var marked []*record
	for r := c.events.first(); r != nil && r.due() <= t; r = c.events.first() {
		c.events.remove(r)
		if r.dead {
			remove(r)
			continue
		}
		c.expired++
		c.ended(r)
		if !c.late {
			r.expires = t // later only if an UPDATE moved it into the past
		}
		if c.grace {
			marked = append(marked, r)
		} else {
			remove(r)
		}
	}
	for _, r := range marked {
		r.dead = true
		c.events.add(r)
	}
	c.rearm()
	took := runTime(records)
	if c.lockUp && c.timer.at != 0 && c.timer.at <= t+took {
		c.locked = true
		c.report(lockUpText(cause, c.timer, t, took, records))
	}
}

// lockUpText describes a run at time t, of a number of records, before whose end another event is due.
func lockUpText(cause, next event, t, took uint64, records int) string {
	due := fmt.Sprintf("due %v later", time.Duration(next.at-t))
	if next.at < t {
		due = fmt.Sprintf("%v overdue", time.Duration(t-next.at))
	}
	return fmt.Sprintf("the server locked up: its collector ran for %v at %s, which takes %v with %d records, and %v was %s",
		cause, timeOf(t).Format("15:04:05.000000"), time.Duration(took), records, next, due)
}

// tableOrder returns where a key stands in the server's table. The order of a real
// server's hash table is not known. Here it is pseudo-random, and depends on nothing
// but the key: FNV-1a, with the finalizer of SplitMix64 for keys that differ little.
func tableOrder(key string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 0x100000001b3
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// before reports whether a stands before b in the table.
func before(a, b *record) bool {
	if a.order != b.order {
		return a.order < b.order
	}
	return a.key < b.key
}

// recordHeap is a heap of records, of which the first has the earliest event.
type recordHeap struct{ records []*record }

// first returns the record with the earliest event, or nil.
func (h *recordHeap) first() *record {
	if len(h.records) == 0 {
		return nil
	}
	return h.records[0]
}

func (h *recordHeap) add(r *record)    { heap.Push(h, r) }
func (h *recordHeap) remove(r *record) { heap.Remove(h, r.position) }
func (h *recordHeap) fix(r *record)    { heap.Fix(h, r.position) }

// Len implements [heap.Interface], as do Less, Swap, Push and Pop.
func (h *recordHeap) Len() int { return len(h.records) }

// Less compares the events of two records.
func (h *recordHeap) Less(i, j int) bool { return h.records[i].due() < h.records[j].due() }

// Swap swaps two records.
func (h *recordHeap) Swap(i, j int) {
	h.records[i], h.records[j] = h.records[j], h.records[i]
	h.records[i].position = i
	h.records[j].position = j
}

// Push appends a record.
func (h *recordHeap) Push(r any) {
	rec := r.(*record)
	rec.position = len(h.records)
	h.records = append(h.records, rec)
}

// Pop removes the last record.
func (h *recordHeap) Pop() any {
	last := len(h.records) - 1
	r := h.records[last]
	h.records[last] = nil
	h.records = h.records[:last]
	return r
}
