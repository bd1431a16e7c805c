package mockserver

import (
	"math/bits"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// record is a counter or a buffer.
type record struct {
	key     string
	buffer  bool
	quota   uint64 // 0 for a buffer
	value   []byte // nil for a counter
	unit    codec.Unit
	expires uint64 // ns since 1970
	dead    bool   // expired, and in its grace
	removal uint64 // end of the grace, ns since 1970; 0 while live
	index   int    // in the schedule
	reads   meter
	writes  meter
}

// due is when something happens to the record next: it expires, or its grace
// ends.
func (r *record) due() uint64 {
	if r.dead {
		return r.removal
	}
	return r.expires
}

// ttl is a TTL of any value size.
type ttl struct {
	amount uint64
	unit   codec.Unit
}

func ttlOf[T codec.Value](t codec.TTL[T]) ttl { return ttl{uint64(t.Amount), t.Unit} }

// store is what the server keeps. The server's lock guards it.
type store struct {
	max      uint64 // the largest value
	grace    bool
	late     bool
	wrap     bool
	lockUp   bool
	records  map[string]*record
	schedule schedule
	armed    uint64 // when the expiry timer fires next, ns since 1970; 0 for never
	start    uint64 // when the server started, ns since 1970
	now      uint64 // the time of the last settling
	minute   uint64 // of now, from start
	expired  int
	locked   bool
}

// live returns the record of key, or nil where it is missing or dead.
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
	st.add(&record{key: string(key), quota: quota, unit: t.unit, expires: end})
	return true, nil
}

// set overwrites a live buffer. What is a counter, or dead, stays.
func (st *store) set(key, value []byte, t ttl) (bool, error) {
	end, err := expiry(st.now, t)
	if err != nil {
		return false, err
	}
	r := &record{key: string(key), buffer: true, value: append([]byte{}, value...), unit: t.unit, expires: end}
	if old := st.records[r.key]; old != nil {
		if old.dead || !old.buffer {
			return false, nil
		}
		st.remove(old)
		r.reads, r.writes = old.reads, old.writes
	}
	st.add(r)
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
		if !st.wrap && value > st.max-r.quota {
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
		end, err = expiry(st.now, ttl{value, r.unit})
	case codec.Increase:
		end, err = expiry(r.expires, ttl{value, r.unit})
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
	st.move(r, end)
	r.writes.mark(st.minute, 1)
	return true, nil
}

// remaining returns what is left of r's TTL in whole units, modulo the value
// size. The nanosecond is the time that a request takes at least.
func (st *store) remaining(r *record) ttl {
	t := ttl{unit: r.unit}
	if r.expires > st.now {
		t.amount = (r.expires - st.now - 1) / uint64(r.unit.Duration()) & st.max
	}
	return t
}

// expiry returns when a TTL that starts at from ends. H13: a real server wraps
// where that does not fit 64 bits.
func expiry(from uint64, t ttl) (uint64, error) {
	hi, ns := bits.Mul64(t.amount, uint64(t.unit.Duration()))
	end, carry := bits.Add64(from, ns, 0)
	if hi != 0 || carry != 0 {
		return 0, breachf("H13", "a TTL of %d%v ends beyond 64-bit nanoseconds since 1970", t.amount, t.unit)
	}
	return end, nil
}

// finest returns the finest unit that holds d, rounded down, in a value up to
// max, and hours where none does.
func finest(d time.Duration, max uint64) codec.Unit {
	for u := codec.Nanoseconds; u < codec.Hours; u++ {
		if uint64(d/u.Duration()) <= max {
			return u
		}
	}
	return codec.Hours
}
