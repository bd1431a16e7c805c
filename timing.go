package throttr

import (
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
	windows "github.com/throttr-go/throttr/window"
)

// ErrRange says that a number is larger than a backend can store. See [RangeError].
var ErrRange = windows.ErrRange

// RangeError is a scale, limit, increment or count that does not fit the value size of a
// server. It matches [ErrRange].
type RangeError = windows.RangeError

const (
	// headroom is what a limit must leave in a counter, so that 64 clients that each
	// add their share at once can't wrap it (H3).
	headroom = 64
	// fullMargin is by how much a record outlives its window, where that fits.
	fullMargin = 30 * time.Second
	// fairMargin is enough for a client to remove the record before it expires.
	fairMargin = 5 * time.Second
)

// timing is how a window of a certain scale is kept in a record: in which unit, and
// by how much the record outlives the window. Both follow from the scale and the
// value size alone, so that all clients agree.
//
// A record is live, its window active, exactly while the TTL read back is at least
// margin: however coarse the unit, flooring does not blur the window's end.
type timing struct {
	scale  time.Duration
	unit   codec.Unit
	length uint64 // the scale in units; twice the scale if aligned
	margin uint64 // in units, at least 1
	// aligned windows end with their bucket by each client's own clock. As clocks differ by
	// less than a scale, the record has to live for one scale more.
	aligned bool
}

// timingFor returns the timing of a scale for an algorithm.
func timingFor(a windows.Algorithm, scale time.Duration, largest uint64) (t timing, ok bool) {
	if a != windows.Aligned {
		return timingOf(scale, largest)
	}
	if scale <= 0 || scale > maxTTL/2 {
		return t, false
	}
	t, ok = timingOf(2*scale, largest)
	t.scale, t.aligned = scale, true
	return t, ok
}

// timingOf returns the timing of a scale for values up to largest, and false where
// no unit holds scale and a margin, or both are over 292 years (H13). Of the units that
// do, it is the finest one whose margin is at least 5 s, so that there is time to remove
// the record (H12); if there is none, the one with the longest margin.
func timingOf(scale time.Duration, largest uint64) (t timing, ok bool) {
	var best time.Duration
	for u := codec.Nanoseconds; u <= codec.Hours; u++ {
		unit := u.Duration()
		length, most := uint64(scale/unit), min(largest, uint64(maxTTL/unit))
		if scale <= 0 || scale%unit != 0 || length >= most {
			continue
		}
		margin := min(max(1, uint64(fullMargin/unit)), most-length)
		if lasts := time.Duration(margin) * unit; lasts > best {
			best = lasts
			t = timing{scale: scale, unit: u, length: length, margin: margin}
		}
		if best >= fairMargin {
			break
		}
	}
	return t, best > 0
}

// duration returns an amount of t's units.
func (t timing) duration(units uint64) time.Duration {
	return time.Duration(units) * t.unit.Duration()
}

// bound returns what is known of the windows' records beforehand.
func (t timing) bound() ttlBound {
	return ttlBound{known: true, unit: t.unit, most: t.length + t.margin}
}

// slack is how long after its window's end a record is removed.
func (t timing) slack() time.Duration {
	return min(t.scale, t.duration(t.margin)/2)
}

// reach returns how many buckets to either side of the present one are looked at: the
// clocks of two clients differ by less than a scale. An aligned window is in its bucket.
func (t timing) reach() int64 {
	if t.aligned {
		return 0
	}
	return 2
}

// end returns the end of a bucket.
func (t timing) end(bucket int64) time.Time { return time.Unix(0, (bucket+1)*int64(t.scale)) }

// over returns when the window of a record in a bucket is over for all clients, if it was
// opened by now at the latest.
func (t timing) over(bucket int64, now time.Time) time.Time {
	if t.aligned {
		return t.end(bucket).Add(t.scale)
	}
	return now.Add(t.scale)
}

// opened returns a window that was opened between two instants.
func (t timing) opened(bucket int64, count uint64, lo, hi time.Time) window {
	w := window{bucket: bucket, count: count, seen: lo, endLo: lo.Add(t.scale), endHi: hi.Add(t.scale)}
	if t.aligned {
		w.endLo, w.endHi = t.end(bucket), t.end(bucket)
	}
	return w
}

// recheck is how often a server is asked about a window that is full, while it is
// known not to have ended: a Set or Reset by another client is seen that late.
func (t timing) recheck() time.Duration {
	return min(max(t.scale/10, 10*time.Millisecond), time.Second)
}

// bucket returns the number of the bucket that an instant lies in.
func (t timing) bucket(now time.Time) int64 {
	ns := now.UnixNano()
	b := ns / int64(t.scale)
	if ns%int64(t.scale) < 0 {
		b--
	}
	return b
}

// largestOf returns the largest value of size bytes.
func largestOf(size int) uint64 { return windows.MaxValue(size) }

// neededFor returns the smallest value size that fits, 0 if none does.
func neededFor(fits func(largest uint64) bool) int { return windows.SmallestSize(fits) }

// scaleError is why there is no timing.
func scaleError(a windows.Algorithm, scale time.Duration, size int) error {
	return &RangeError{
		Field: "scale", Value: scale.String(), Size: size,
		Bound: scaleBound(a, size),
		Needs: neededFor(func(largest uint64) bool {
			_, ok := timingFor(a, scale, largest)
			return ok
		}),
	}
}

// scaleBound says in words which scales have a timing.
func scaleBound(a windows.Algorithm, size int) string {
	unit := "a unit"
	if a == windows.Aligned {
		unit = "half a unit"
	}
	return fmt.Sprintf("whole numbers of %s (1 ns to 1 h) up to %d", unit, largestOf(size)-1)
}

// checkCount refuses a number that would not leave the headroom.
func checkCount(field string, n uint64, size int) error {
	if n <= largestOf(size)-headroom {
		return nil
	}
	return &RangeError{
		Field: field, Value: strconv.FormatUint(n, 10), Size: size,
		Bound: fmt.Sprintf("at most %d, as %d are kept free for clients that add at once", largestOf(size)-headroom, headroom),
		Needs: neededFor(func(largest uint64) bool { return n <= largest-headroom }),
	}
}
