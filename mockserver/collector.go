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
// Without [Grace], expiry removes a record. Without [LateExpiry], the timer is always set to the earliest event, but a
// change of the TTL of the record with the empty key holds it until that record ends. Without [LockUp], another run
// follows.
type collector struct {
	hazards *[hazardCount]bool
	timer   uint64     // when it fires, in ns since 1970; 0: not at all
	events  recordHeap // all records, by their next event
	first   *record    // the first live record in table order; nil: not known
	parking *record    // holds the timer at its expiry; nil: none; always nil with LateExpiry
	expired int        // records that have expired
	locked  bool
	report  func(text string) // called when the server locks up
}

// due returns when the record's next event is due. It is not 0.
func (r *record) due() uint64 {
	if r.dead {
		return r.expires + graceTime
	}
	return max(r.expires, 1)
}

// added is called for each new record.
func (c *collector) added(r *record) {
	c.events.add(r)
	if !c.hazards[LateExpiry] {
		c.rearm()
		return
	}
	r.order = tableOrder(r.key)
	if c.first == nil {
		c.findFirst()
	} else if r.order < c.first.order {
		c.first = r
	}
	if r.expires <= c.first.expires {
		c.timer = r.due()
	}
}

// findFirst finds the first live record in table order. Of many records it is seldom the one that is removed, so that
// this is seldom called.
func (c *collector) findFirst() {
	for _, r := range c.events.records {
		if !r.dead && (c.first == nil || r.order < c.first.order) {
			c.first = r
		}
	}
}

// removed is called for each record that is removed other than by a run.
func (c *collector) removed(r *record) {
	c.events.remove(r)
	c.ended(r)
	if !c.hazards[LateExpiry] {
		c.rearm()
	}
}

// changed is called for each live record that has a new expiry. A SET of an existing buffer
// does not set the timer even if its key is empty.
func (c *collector) changed(r *record, bySet bool) {
	c.events.fix(r)
	sets := r.key == "" && !bySet
	switch {
	case c.hazards[LateExpiry] && sets:
		c.timer = r.due()
	case !c.hazards[LateExpiry]:
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

// rearm sets the timer to the earliest event, or to the expiry of the record that holds it.
func (c *collector) rearm() {
	c.timer = 0
	switch r := c.events.first(); {
	case c.parking != nil:
		c.timer = c.parking.due()
	case r != nil:
		c.timer = r.due()
	}
}

// run runs the collector at time t. It calls remove for each record to be removed from
// the store.
func (c *collector) run(t uint64, remove func(*record)) {
	records := len(c.events.records)
	var marked []*record
	for r := c.events.first(); r != nil && r.due() <= t; r = c.events.first() {
		c.events.remove(r)
		if r.dead {
			remove(r)
			continue
		}
		c.expired++
		c.ended(r)
		if !c.hazards[LateExpiry] {
			r.expires = t // later only if an UPDATE moved it into the past
		}
		if c.hazards[Grace] {
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
	if c.hazards[LockUp] && c.timer != 0 && c.timer <= t+took {
		c.locked = true
		c.report(fmt.Sprintf("the server locked up: its collector ran at %s, which takes %v with %d records, and %s",
			timeOf(t).Format("15:04:05.000000"), time.Duration(took), records, c.events.first().dueAt(t)))
	}
}

// dueAt describes the record's next event at time t, such as `the expiry of "k" was due 1µs later`.
func (r *record) dueAt(t uint64) string {
	what := "expiry"
	if r.dead {
		what = "end of the grace"
	}
	when := fmt.Sprintf("due %v later", time.Duration(r.due()-t))
	if r.due() < t {
		when = fmt.Sprintf("%v overdue", time.Duration(t-r.due()))
	}
	return fmt.Sprintf("the %s of %q was %s", what, r.key, when)
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
