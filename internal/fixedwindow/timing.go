package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

const (
	// fullMargin is by how much a record outlives its window, if that fits.
	fullMargin = 10 * time.Minute
	// fairMargin is enough time for the sweeper of another client to remove the record of one
	// that has died.
	fairMargin = time.Minute
	// minMargin is the shortest margin on a server that is not parked. In less time, a client
	// that is busy can't be sure to remove the record before it expires.
	minMargin = time.Second
	// maxTTL is the longest TTL, some 292 years: the server adds it to its clock, and the sum
	// must fit 64-bit nanoseconds (H13).
	maxTTL = time.Duration(1<<63 - 1)
)

// timing is how windows of a scale are kept in records: in which unit, and by how much a
// record outlives its window. Both follow from the scale and the value size alone, so that all
// clients agree.
//
// The window of a record is active exactly while the TTL that a QUERY returns is at least
// margin. Flooring to a unit, however coarse, does not blur the end of the window.
type timing struct {
	scale  time.Duration
	unit   codec.Unit
	span   uint64 // the scale in units; twice the scale if aligned
	margin uint64 // in units, at least 1
	// aligned windows end with their bucket, by each client's own clock. Clocks differ by
	// less than a scale, so the record lives for one scale more.
	aligned bool
}

// timingFor returns the timing of a scale for an algorithm. It returns false if there is
// none.
func timingFor(a window.Algorithm, scale time.Duration, maxValue uint64) (t timing, ok bool) {
	if a != window.Aligned {
		return timingOf(scale, maxValue)
	}
	if scale <= 0 || scale > maxTTL/2 {
		return t, false
	}
	t, ok = timingOf(2*scale, maxValue)
	t.scale, t.aligned = scale, true
	return t, ok
}

// timingOf returns the timing of a scale for values up to maxValue. It returns false if no
// unit holds scale and a margin, or if both together are over 292 years (H13). Of the
// units that do, it is the finest one whose margin is at least a minute, so that there is time
// to remove the record (H12). If there is none, it is the one with the longest margin.
func timingOf(scale time.Duration, maxValue uint64) (t timing, ok bool) {
	var best time.Duration
	for u := codec.Nanoseconds; u <= codec.Hours; u++ {
		unit := u.Duration()
		span, most := uint64(scale/unit), min(maxValue, uint64(maxTTL/unit))
		if scale <= 0 || scale%unit != 0 || span >= most {
			continue
		}
		margin := min(max(1, uint64(fullMargin/unit)), most-span)
		if lasts := time.Duration(margin) * unit; lasts > best {
			best = lasts
			t = timing{scale: scale, unit: u, span: span, margin: margin}
		}
		if best >= fairMargin {
			break
		}
	}
	return t, best > 0
}

// needsParking reports whether the margin is too short for a server where records expire.
func (t timing) needsParking() bool { return t.duration(t.margin) < minMargin }

// duration returns the duration of a number of units.
func (t timing) duration(units uint64) time.Duration {
	return time.Duration(units) * t.unit.Duration()
}

// grace is how long after the end of its window a record is removed.
func (t timing) grace() time.Duration {
	return min(t.scale, t.duration(t.margin)/2)
}

// denialMemory is for how long a denial is remembered by default, and so how late a Set or
// Reset by another client takes effect.
func (t timing) denialMemory() time.Duration {
	return min(max(t.scale/10, 10*time.Millisecond), time.Second)
}

// bucket returns the number of the bucket in which now lies.
func (t timing) bucket(now time.Time) int64 {
	ns := now.UnixNano()
	b := ns / int64(t.scale)
	if ns%int64(t.scale) < 0 {
		b--
	}
	return b
}

// bucketEnd returns the end of a bucket.
func (t timing) bucketEnd(bucket int64) time.Time {
	return time.Unix(0, (bucket+1)*int64(t.scale))
}

// reach returns how many buckets to either side of the present one are looked up: the
// clocks of two clients differ by less than a scale. An aligned window is in its own bucket.
func (t timing) reach() int64 {
	if t.aligned {
		return 0
	}
	return 2
}

// over returns when a window is over for all clients that was opened in a bucket, by now at
// the latest.
func (t timing) over(bucket int64, now time.Time) time.Time {
	if t.aligned {
		return t.bucketEnd(bucket).Add(t.scale)
	}
	return now.Add(t.scale)
}
