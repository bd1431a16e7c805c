package mockserver

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
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
	timer   uint64 // when it fires, in ns since 1970; 0: not at all
	events  schedule
	first   *record // the first live record in table order; nil: not known
	parking *record // holds the timer at its expiry; nil: none; always nil with LateExpiry
	expired int     // records that have expired
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
	heap.Push(&c.events, r)
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
	for _, r := range c.events {
		if !r.dead && (c.first == nil || r.order < c.first.order) {
			c.first = r
		}
	}
}

// removed is called for each record that is removed other than by a run.
func (c *collector) removed(r *record) {
	heap.Remove(&c.events, r.position)
	c.ended(r)
	if !c.hazards[LateExpiry] {
		c.rearm()
	}
}

// move gives a live record a new expiry. A SET of an existing buffer does not set the timer even if its key is empty.
func (c *collector) move(r *record, expires uint64, bySet bool) {
	r.expires = expires
	heap.Fix(&c.events, r.position)
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
	switch {
	case c.parking != nil:
		c.timer = c.parking.due()
	case len(c.events) > 0:
		c.timer = c.events[0].due()
	}
}

// run runs the collector at time t. It calls remove for each record to be removed from
// the store.
func (c *collector) run(t uint64, remove func(*record)) {
	records := len(c.events)
	var due []*record
	for len(c.events) > 0 && c.events[0].due() <= t {
		due = append(due, heap.Pop(&c.events).(*record))
	}
	for _, r := range due {
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
			r.dead = true
			heap.Push(&c.events, r)
		} else {
			remove(r)
		}
	}
	c.rearm()
	took := runTime(records)
	if c.hazards[LockUp] && c.timer != 0 && c.timer <= t+took {
		c.locked = true
		c.report(fmt.Sprintf("the server locked up: its collector ran at %s, which takes %v with %d records, and %s",
			timeOf(t).Format("15:04:05.000000"), time.Duration(took), records, c.events[0].dueAt(t)))
	}
}

// dueAt describes the record's next event at time t, such as `the expiry of "k" was due 1µs later`.
func (r *record) dueAt(t uint64) string {
	what := "expiry"
	if r.dead {
		what = "end of the grace"
	}
	return fmt.Sprintf("the %s of %q was due %v later", what, r.key, time.Duration(max(r.due(), t)-t))
}

// tableOrder returns where a key stands in the server's table. The order of a real server's hash table is not known.
// Here it is pseudo-random, and depends on nothing but the key.
func tableOrder(key string) uint64 {
	h := sha256.Sum256([]byte(key))
	return binary.LittleEndian.Uint64(h[:])
}

// schedule is a heap of all records, of which the first has the earliest event.
type schedule []*record

// Len implements [heap.Interface].
func (s schedule) Len() int { return len(s) }

// Less implements [heap.Interface].
func (s schedule) Less(i, j int) bool { return s[i].due() < s[j].due() }

// Swap implements [heap.Interface]. Each record knows its position, so that it can be removed.
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position = i
	s[j].position = j
}

// Push implements [heap.Interface].
func (s *schedule) Push(r any) {
	r.(*record).position = len(*s)
	*s = append(*s, r.(*record))
}

// Pop implements [heap.Interface].
func (s *schedule) Pop() any {
	last := len(*s) - 1
	r := (*s)[last]
	*s = slices.Delete(*s, last, last+1)
	return r
}
