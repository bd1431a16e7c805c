package memory

import (
	"math"
	"time"

	"github.com/throttr-go/throttr/window"
)

// referenceMaxAge is the greatest age of a shard's reference time.
const referenceMaxAge = int64(time.Second)

// clockReadings is how often the clocks are read at most, until the process has not stopped meanwhile.
const clockReadings = 4

// timestamp is a time, and the same time in nanoseconds since the backend's origin.
type timestamp struct {
	time  time.Time
	nanos int64
}

// now returns the nanoseconds since the backend's origin, and renews the shard's reference
// time if it is too old. The mutex is held.
//
// Reading the monotonic clock takes half as long as reading both clocks. So the wall clock is read
// once a second. In between, times of day are computed from the reference time. If the wall clock
// is set, they are wrong for up to a second, and aligned and sliding windows follow it then. Other
// windows depend on the monotonic clock only.
func (s *shard) now(b *Backend) int64 {
	if b.system {
		if nanos := int64(time.Since(b.origin)); nanos-s.readAt < referenceMaxAge {
			return nanos + s.ahead
		}
	}
	return s.readClock(b)
}

// readClock reads the clock. Aligned and sliding windows follow the wall clock. Others follow the
// monotonic clock, if the clock's times have a monotonic reading.
//
// A process can stop in the call that reads both clocks, between the two. The time of day is old then,
// and would be so for a second. So the clocks are read again if that took long.
func (s *shard) readClock(b *Backend) int64 {
	var t time.Time
	for range clockReadings {
		before := time.Since(b.origin)
		t = b.clock()
		if s.readAt = int64(t.Sub(b.origin)); !b.system || t.Sub(b.origin)-before < time.Millisecond {
			break
		}
	}
	if b.aligned {
		t = t.Round(0)
	}
	if back := s.reference.nanos - int64(t.Sub(b.origin)); back >= int64(window.MinScale) {
		s.firstEnd, s.nextSweep = math.MinInt64, math.MinInt64 // windows may be over that start in the future
	}
	s.reference = timestamp{t, int64(t.Sub(b.origin))}
	s.lastEnd, s.ahead = s.reference, s.reference.nanos-s.readAt
	return s.reference.nanos
}

// aligned returns the start of the present aligned window. The mutex is held.
func (s *shard) aligned(b *Backend, now int64, scale time.Duration) int64 {
	t := s.reference.time.Add(minus(now, s.reference.nanos))
	return int64(window.Aligned.Start(t, scale).Sub(b.origin))
}
