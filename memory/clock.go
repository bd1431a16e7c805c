package memory

import "time"

// referenceMaxAge is the greatest age of a shard's reference time.
const referenceMaxAge = int64(time.Second)

// timestamp is a time, and the same time in nanoseconds since the backend's origin.
type timestamp struct {
	time  time.Time
	nanos int64
}

// now returns the nanoseconds since the backend's origin, and renews the shard's reference
// time if it is too old. The mutex is held.
//
// Per-key windows depend on the monotonic clock only. Reading it takes half as long as reading
// both clocks. The wall clock is read once a second. In between, times of day are computed
// from the reference time, so if the wall clock is set, they are wrong for up to a second. The
// windows are not affected.
func (s *shard) now(b *Backend) int64 {
	if b.monotonic {
		if nanos := int64(time.Since(b.origin)); nanos-s.reference.nanos < referenceMaxAge {
			return nanos
		}
	}
	s.reference = b.readClock()
	s.lastEnd = s.reference
	return s.reference.nanos
}

// readClock reads the clock. Aligned and sliding windows follow the wall clock. Others follow the
// monotonic clock, if the clock's times have a monotonic reading.
func (b *Backend) readClock() timestamp {
	t := b.clock()
	if b.aligned {
		t = t.Round(0)
	}
	return timestamp{t, int64(t.Sub(b.origin))}
}
