package mockserver

import (
	"container/heap"
	"time"
)

// graceTime is how long an expired record keeps its key (H1).
const graceTime = uint64(10 * time.Second)

// runTime is how long an expiry run is taken to last when [LockUp] is on. Load
// tests of a real server fit some 3 to 40 µs.
const runTime = uint64(10 * time.Microsecond)

// settle lets everything happen that falls due up to now. Nothing runs in the
// background: whoever looks at the store settles it first, and finds it as if
// the timer had fired in time.
func (st *store) settle(now uint64) {
	// A record whose expiry was moved into the past expires now, not then: the
	// last settling is the earliest time at which a run can take place.
	for !st.locked && st.armed != 0 && st.armed <= now {
		st.run(max(st.armed, st.now))
	}
	st.now = max(st.now, now)
	st.minute = minuteOf(st.start, st.now)
}

// run is one firing of the expiry timer at time t.
func (st *store) run(t uint64) {
	lateGrace := false
	for len(st.schedule) > 0 && st.schedule[0].due() <= t {
		r := st.schedule[0]
		if r.dead {
			st.discard(r)
			continue
		}
		st.expired++
		if st.grace && r.expires+graceTime <= t {
			lateGrace = true
		}
		if !st.grace {
			st.discard(r)
			continue
		}
		r.dead, r.removal = true, t+graceTime
		heap.Fix(&st.schedule, r.index)
	}
	st.arm()
	if st.lockUp {
		// H12: a real server locks itself when a run ends and the next deadline
		// is past. It is past where another fell due while the run lasted, and
		// where a record came so late that its grace, counted from its TTL's
		// end, is over as well.
		st.locked = lateGrace || st.armed != 0 && st.armed <= t+runTime
	}
}

// add puts in a record whose key is free.
func (st *store) add(r *record) {
	r.writes.mark(st.minute, 1)
	st.records[r.key] = r
	heap.Push(&st.schedule, r)
	if st.late {
		// H2: the one timer follows the latest record, whoever else is waiting.
		st.armed = r.expires
		return
	}
	st.arm()
}

func (st *store) remove(r *record) {
	st.discard(r)
	if !st.late {
		st.arm()
	}
}

func (st *store) move(r *record, expires uint64) {
	r.expires = expires
	heap.Fix(&st.schedule, r.index)
	if !st.late {
		st.arm()
	}
}

func (st *store) discard(r *record) {
	delete(st.records, r.key)
	heap.Remove(&st.schedule, r.index)
}

func (st *store) arm() {
	st.armed = 0
	if len(st.schedule) > 0 {
		// At 0 ns since 1970 the timer would never fire.
		st.armed = max(st.schedule[0].due(), 1)
	}
}

// restart unlocks the store, and empties it unless told to keep its records.
func (st *store) restart(keep bool) {
	st.locked = false
	if !keep {
		clear(st.records)
		st.schedule = nil
	}
	st.arm()
}

// schedule is a heap of all records, the one that is due next on top.
type schedule []*record

// Len implements heap.Interface, as the methods below do.
func (s schedule) Len() int { return len(s) }

// Less puts what is due sooner first.
func (s schedule) Less(i, j int) bool { return s[i].due() < s[j].due() }

// Swap swaps two records.
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push appends a record.
func (s *schedule) Push(r any) {
	rec := r.(*record)
	rec.index = len(*s)
	*s = append(*s, rec)
}

// Pop takes the last record away.
func (s *schedule) Pop() any {
	old := *s
	last := len(old) - 1
	r := old[last]
	old[last] = nil
	*s = old[:last]
	return r
}
