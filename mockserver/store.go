package mockserver

import (
	"container/heap"
	"math/bits"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// record is a counter or a buffer.
type record struct {
	key      string
	buffer   bool
	quota    uint64 // 0 for a buffer
	value    []byte // nil for a counter
	unit     codec.Unit
	expires  uint64 // ns since 1970
	dead     bool   // marked by the collector: expired, and in its grace
	order    uint64 // in the table
	position int    // in collector.events
	reads    meter
	writes   meter
	removed  bool
}

// ttl is a TTL of any value size.
type ttl = codec.TTL[uint64]

func ttlOf[T codec.Value](t codec.TTL[T]) ttl { return ttl{Amount: uint64(t.Amount), Unit: t.Unit} }

// store holds the records. The server's lock guards it.
type store struct {
	hazards   *[hazardCount]bool
	max       uint64 // the largest value
	records   map[string]*record
	made      int // records that were made since the server started
	collector collector
	removals  []uint64 // when records were removed, in ns since 1970, with GarbledList
	garbled   int      // how many responses had entries that never existed
	start     uint64   // when the server started or restarted, ns since 1970
	now       uint64   // the time up to which all events have happened
	minute    uint64   // of now, from start
}

// catchUp runs the collector at each time up to now at which the timer fires. Nothing runs
// in the background: every use of the store begins with catchUp, and finds the store as if
// the timer had fired in time.
func (st *store) catchUp(now uint64) {
	c := &st.collector
	for !c.locked && c.timer != 0 && c.timer <= now {
		// A timer that was set to the past fires when it was set, at st.now.
		st.now = max(c.timer, st.now)
		c.run(st.now, st.forget)
	}
	st.now = max(st.now, now)
	st.minute = (st.now - st.start) / uint64(time.Minute) // whole ones
}

// add stores a record whose key is free.
func (st *store) add(r *record) {
	r.writes.mark(st.minute, 1)
	st.made++
	st.records[r.key] = r
	st.collector.added(r)
}

// remove removes a record.
func (st *store) remove(r *record) {
	st.collector.removed(r)
	st.forget(r)
}

// forget removes a record that the collector has removed.
func (st *store) forget(r *record) {
	delete(st.records, r.key)
	r.removed = true
	if st.hazards[GarbledList] {
		st.removals = append(st.removals, st.now)
	}
}

// restart empties the store as the start of a server does, but for records that have not expired, if keep.
func (st *store) restart(keep bool, now uint64) {
	st.made = 0
	st.start = now
	c := &st.collector
	*c = collector{hazards: c.hazards, expired: c.expired, report: c.report}
	for _, r := range st.records {
		if keep && !r.dead && r.expires > now {
			heap.Push(&c.events, r)
			continue
		}
		if keep && !r.dead {
			c.expired++
		}
		st.forget(r)
	}
	st.removals = nil
	c.rearm()
}

// live returns the record of key, or nil if it is missing or dead.
func (st *store) live(key []byte) *record {
	if r := st.records[string(key)]; r != nil && !r.dead {
		return r
	}
	return nil
}

// read is live, and counts as a read of the record.
func (st *store) read(key []byte) *record {
	r := st.live(key)
	if r != nil {
		r.reads.mark(st.minute, 1)
	}
	return r
}

func (st *store) insert(key []byte, quota uint64, t ttl) (bool, error) {
	end, err := expiry(st.now, t)
	if err != nil {
		return false, err
	}
	if st.records[string(key)] != nil {
		return false, nil
	}
	st.add(&record{key: string(key), quota: quota, unit: t.Unit, expires: end})
	return true, nil
}

// set creates a buffer, or overwrites a live one.
func (st *store) set(key, value []byte, t ttl) (bool, error) {
	end, err := expiry(st.now, t)
	if err != nil {
		return false, err
	}
	value = append([]byte{}, value...)
	r := st.records[string(key)]
	if r == nil {
		st.add(&record{key: string(key), buffer: true, value: value, unit: t.Unit, expires: end})
		return true, nil
	}
	if r.dead || !r.buffer {
		return false, nil
	}
	r.value = value
	r.unit = t.Unit
	r.writes.mark(st.minute, 1)
	st.collector.move(r, end, true)
	return true, nil
}

func (st *store) purge(key []byte) bool {
	r := st.live(key)
	if r == nil {
		return false
	}
	st.remove(r)
	return true
}

func (st *store) updateQuota(key []byte, change codec.Change, value uint64) bool {
	r := st.read(key)
	if r == nil || r.buffer {
		return false
	}
	switch change {
	case codec.Patch:
		r.quota = value
	case codec.Increase:
		if !st.hazards[Wrap] && value > st.max-r.quota {
			return false
		}
		r.quota = (r.quota + value) & st.max
	case codec.Decrease:
		if value > r.quota {
			return false
		}
		r.quota -= value
	}
	r.writes.mark(st.minute, 1)
	return true
}

func (st *store) updateTTL(key []byte, change codec.Change, value uint64) (bool, error) {
	r := st.read(key)
	if r == nil {
		return false, nil
	}
	end, err := r.expires, error(nil)
	switch change {
	case codec.Patch:
		end, err = expiry(st.now, ttl{Amount: value, Unit: r.unit})
	case codec.Increase:
		end, err = expiry(r.expires, ttl{Amount: value, Unit: r.unit})
	case codec.Decrease:
		hi, ns := bits.Mul64(value, uint64(r.unit.Duration()))
		if hi != 0 || ns > r.expires {
			return false, breachf("H13", "UPDATE TTL DECREASE %d%v moves an expiry before 1970", value, r.unit)
		}
		end = r.expires - ns
	}
	if err != nil {
		return false, err
	}
	r.writes.mark(st.minute, 1)
	st.collector.move(r, end, false)
	return true, nil
}

// expiry returns when a TTL that starts at from ends. If that does not fit 64 bits, it
// returns a violation (H13): a real server wraps.
func expiry(from uint64, t ttl) (uint64, error) {
	hi, ns := bits.Mul64(t.Amount, uint64(t.Unit.Duration()))
	end, carry := bits.Add64(from, ns, 0)
	if hi != 0 || carry != 0 {
		return 0, breachf("H13", "a TTL of %v ends beyond 64-bit nanoseconds since 1970", t)
	}
	return end, nil
}

// finest returns the finest unit in which d, rounded down, is at most most; hours if
// there is none.
func finest(d time.Duration, most uint64) codec.Unit {
	u := codec.Nanoseconds
	for u < codec.Hours && uint64(d/u.Duration()) > most {
		u++
	}
	return u
}
