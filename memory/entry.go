package memory

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"
)

// entry is a window in a table. Times are nanoseconds since the backend's origin.
type entry struct {
	start int64
	// meta has, in its higher half, the generation: it differs from that of the windows that the
	// shard opened before and after. The lower half is the time from the start to the last update,
	// see resolution.
	meta  uint64
	count uint64
	scale time.Duration
}

// id returns the identity of the window. If a shard opens 2^32 windows, one of them has the
// generation of the first; but it hardly starts in the same nanosecond of four seconds, too.
func (e *entry) id() int64 { return int64(e.meta&^math.MaxUint32) | e.start&math.MaxUint32 }

// updated returns the time of the last update, rounded down.
func (e *entry) updated() int64 { return e.start + int64(e.meta&math.MaxUint32)<<resolution(e.scale) }

// update sets the last update, unless it was later: the coarse clock may be behind.
func (e *entry) update(now int64) {
	if passed := uint64(max(0, now-e.start)) >> resolution(e.scale); passed > e.meta&math.MaxUint32 {
		e.meta = e.meta&^math.MaxUint32 | passed
	}
}

// resolution returns the resolution of the last update of windows of the given scale: 1<<resolution
// nanoseconds. So the time from the start to the last update takes four bytes.
func resolution(scale time.Duration) uint {
	return uint(bits.Len32(uint32(uint64(scale) >> 32)))
}

// end returns when the window ends, or the largest time if the end is beyond it.
func (e *entry) end() int64 { return after(e.start, e.scale) }

// after returns t + d, or the largest time if the sum is beyond it.
func after(t int64, d time.Duration) int64 {
	if t > math.MaxInt64-int64(d) {
		return math.MaxInt64
	}
	return t + int64(d)
}

// active reports whether the window has not ended. If the clock went back to before the
// window's start, the window is active if a window that opened now would overlap it. So no
// window gets more than its limit, and no key is denied for longer than two scales.
func (e *entry) active(now int64) bool { return e.activeUntil(e.end(), now) }

// activeUntil is active for a window that ends at end.
func (e *entry) activeUntil(end, now int64) bool {
	return now < end && (e.start <= now || minus(e.start, now) < e.scale)
}

// add adds increment to the count, which stays at the largest uint64.
func (e *entry) add(increment uint64, now int64) {
	e.update(now)
	if e.count += increment; e.count < increment {
		e.count = math.MaxUint64
	}
}

// minus returns a - b, or the largest or smallest Duration if the difference is beyond it.
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

// record is the encoding of an entry and its id in a table: 8 bytes each for start, meta, count and
// scale, 4 for the hash, 1 for the length of the key, then the key.
type record []byte

const (
	hashOffset   = 32
	lengthOffset = 36
	keyOffset    = 37
)

func (r record) entry() entry {
	_ = r[keyOffset]
	return entry{
		start: int64(binary.LittleEndian.Uint64(r[0:])),
		meta:  binary.LittleEndian.Uint64(r[8:]),
		count: binary.LittleEndian.Uint64(r[16:]),
		scale: time.Duration(binary.LittleEndian.Uint64(r[24:])),
	}
}

func (r record) set(e entry) {
	_ = r[keyOffset]
	binary.LittleEndian.PutUint64(r[0:], uint64(e.start))
	binary.LittleEndian.PutUint64(r[8:], e.meta)
	binary.LittleEndian.PutUint64(r[16:], e.count)
	binary.LittleEndian.PutUint64(r[24:], uint64(e.scale))
}

// setState stores all but the scale.
func (r record) setState(e *entry) {
	_ = r[keyOffset]
	binary.LittleEndian.PutUint64(r[0:], uint64(e.start))
	binary.LittleEndian.PutUint64(r[8:], e.meta)
	binary.LittleEndian.PutUint64(r[16:], e.count)
}

// setCount stores what add has changed.
func (r record) setCount(e *entry) {
	_ = r[keyOffset]
	binary.LittleEndian.PutUint64(r[8:], e.meta)
	binary.LittleEndian.PutUint64(r[16:], e.count)
}

func (r record) hash() uint32 { return binary.LittleEndian.Uint32(r[hashOffset:]) }

func (r record) key() []byte { return r[keyOffset:][:r[lengthOffset]] }

// isOf reports whether r is the record of k.
func (r record) isOf(k id) bool {
	return time.Duration(binary.LittleEndian.Uint64(r[24:])) == k.scale && string(r.key()) == k.key
}

// setID makes r the record of k.
func (r record) setID(k id) {
	binary.LittleEndian.PutUint64(r[24:], uint64(k.scale))
	binary.LittleEndian.PutUint32(r[hashOffset:], k.hash)
	r[lengthOffset] = byte(copy(r[keyOffset:], k.key))
}
