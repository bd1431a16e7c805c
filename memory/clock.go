package memory

import (
	"math"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
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
		if nanos := int64(time.Since(b.origin)); nanos-s.reference.nanos < referenceMaxAge {
			return nanos
		}
	}
	return s.readClock(b)
}

// readClock reads the clock. If the clock's times have a monotonic reading, that counts, and the time of
// day is ahead of it by what it has been set forward since the origin.
//
// A process can stop in the call that reads both clocks, between the two. The time of day is old then,
// and would be so for a second. So the clocks are read again if that took long.
func (s *shard) readClock(b *Backend) int64 {
	var t time.Time
	for range clockReadings {
		before := time.Since(b.origin)
		t = b.clock()
		if !b.system || t.Sub(b.origin)-before < time.Millisecond {
			break
		}
	}
	nanos := int64(t.Sub(b.origin))
	ahead := int64(t.Round(0).Sub(b.origin.Round(0))) - nanos
	back := s.reference.nanos - nanos
	if max(back, back+s.ahead-ahead) >= int64(window.MinScale) {
		s.firstEnd, s.nextSweep = math.MinInt64, math.MinInt64 // windows may be over that start in the future
	}
	s.reference, s.ahead = timestamp{t, nanos}, ahead
	s.lastEnd = s.reference
	return nanos
}

// shift returns by how much the times of an algorithm's entries are ahead of the shard's: those that follow
// the wall clock are. The mutex is held.
func (s *shard) shift(a *algorithm) int64 {
	if a.aligned {
		return s.ahead
	}
	return 0
}

// alignedStart returns the start of the aligned window of a time of entries that follow the wall clock. The
// mutex is held.
func (s *shard) alignedStart(now int64, scale time.Duration) int64 {
	t := s.reference.time.Add(minus(now, s.reference.nanos+s.ahead))
	return now + int64(limits.AlignedStart(t, scale).Sub(t))
}

// timeOf returns the time of day of the end of a window. The mutex is held.
func (s *shard) timeOf(ends int64) time.Time {
	if ends != s.lastEnd.nanos {
		s.lastEnd = timestamp{s.reference.time.Add(minus(ends, s.reference.nanos)), ends}
	}
	return s.lastEnd.time
}
