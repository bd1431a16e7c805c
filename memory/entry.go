package memory

import (
	"encoding/binary"
	"math"
	"time"
)

// entry is the state of a window. Times are nanoseconds since the backend's origin.
type entry struct {
	start, updated int64
	count          uint64
	scale          time.Duration
}

// end returns when the window ends, or the largest time where that is beyond it.
func (e *entry) end() int64 {
	if e.start > math.MaxInt64-int64(e.scale) {
		return math.MaxInt64
	}
	return e.start + int64(e.scale)
}

// active reports whether the window has not ended. If the clock was turned back, to before
// the window's start, it goes on as long as one that opened now would overlap it: so no
// window has more than its limit, and no key is shut out for two scales.
func (e *entry) active(now int64) bool {
	return now < e.end() && minus(e.start, now) < e.scale
}

// over reports whether the window has been over for age, or lies too far ahead.
func (e *entry) over(now int64, age time.Duration) bool {
	end := e.end()
	return !e.active(now) && (now < end || minus(now, end) >= age)
}

// add adds to the count, which stays at the largest uint64.
func (e *entry) add(increment uint64, now int64) {
	e.updated = now
	if e.count += increment; e.count < increment {
		e.count = math.MaxUint64
	}
}

// minus returns a - b, or the largest or smallest Duration where that is beyond it.
func minus(a, b int64) time.Duration {
	d := a - b
	switch {
	case a >= b && d < 0:
		return math.MaxInt64
	case a < b && d >= 0:
		return math.MinInt64
	}
	return time.Duration(d)
}

// record is an entry and its key as they are kept: 8 bytes each for start, updated, count
// and scale, 4 for the hash, the key's length, the key.
type record []byte

const (
	hashAt   = 32
	lengthAt = 36
	keyAt    = 37
)

func (r record) entry() entry {
	_ = r[keyAt]
	return entry{
		start:   int64(binary.LittleEndian.Uint64(r[0:])),
		updated: int64(binary.LittleEndian.Uint64(r[8:])),
		count:   binary.LittleEndian.Uint64(r[16:]),
		scale:   time.Duration(binary.LittleEndian.Uint64(r[24:])),
	}
}

func (r record) set(e entry) {
	_ = r[keyAt]
	binary.LittleEndian.PutUint64(r[0:], uint64(e.start))
	binary.LittleEndian.PutUint64(r[8:], uint64(e.updated))
	binary.LittleEndian.PutUint64(r[16:], e.count)
	binary.LittleEndian.PutUint64(r[24:], uint64(e.scale))
}

func (r record) hash() uint32 { return binary.LittleEndian.Uint32(r[hashAt:]) }

func (r record) key() []byte { return r[keyAt:][:r[lengthAt]] }

// is reports whether the record is that of k.
func (r record) is(k id) bool {
	return time.Duration(binary.LittleEndian.Uint64(r[24:])) == k.scale && string(r.key()) == k.key
}

// name makes the record that of k.
func (r record) name(k id) {
	binary.LittleEndian.PutUint64(r[24:], uint64(k.scale))
	binary.LittleEndian.PutUint32(r[hashAt:], k.hash)
	r[lengthAt] = byte(copy(r[keyAt:], k.key))
}
