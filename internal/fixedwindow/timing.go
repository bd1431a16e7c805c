package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// fullMargin and fairMargin are how long a record outlives its window, if that fits, and the
	// shortest time for which a finer unit is preferred.
	fullMargin = 10 * time.Minute
	fairMargin = time.Minute
	// maxTTL is the longest TTL, some 292 years: the server adds it to its clock, and the sum
	// must fit 64-bit nanoseconds (H13).
	maxTTL = time.Duration(1<<63 - 1)
)

// timing is how aligned windows of a scale are kept in records. It follows from the scale, the value
// size and the algorithm alone, so that all clients agree.
//
// Aligned windows end with their bucket, by each client's own clock. Clocks differ by less than a
// scale, so the record lives for one scale more, and then for a margin in which it is removed. A
// sliding window reads the record of a bucket for another scale.
type timing struct {
	scale   time.Duration
	sliding bool
	unit    codec.Unit
	ttl     uint64 // in units
}

// timingFor returns the timing of a scale for values up to the largest. It returns false if no
// unit holds twice the scale and a margin, or three times the scale if the windows are sliding. Of the
// units that do, it is the finest one whose margin is at least a minute, so that there is time to
// remove the record (H12). If there is none, it is the one with the longest margin.
func timingFor(scale time.Duration, sliding bool, largest uint64) (t timing, ok bool) {
	t = timing{scale: scale, sliding: sliding}
	if scale <= 0 || scale > maxTTL/t.uses() {
		return timing{}, false
	}
	use := t.uses() * scale
	var best time.Duration
	for u := codec.Nanoseconds; u <= codec.Hours && best < fairMargin; u++ {
		unit := u.Duration()
		span, most := uint64(use/unit), min(largest, uint64(maxTTL/unit))
		if use%unit != 0 || span >= most {
			continue
		}
		margin := min(max(1, uint64(fullMargin/unit)), most-span)
		if lasts := time.Duration(margin) * unit; lasts > best {
			best = lasts
			t.unit, t.ttl = u, span+margin
		}
	}
	return t, best >= minMargin
}

const (
	// minMargin is the least time to remove a record, on a server that is parked.
	minMargin = time.Second
	// minSweptMargin is the least time on a server that is not. Sweeps come every 2 s then. The age
	// of the last one is known in whole seconds.
	minSweptMargin = 12 * time.Second
)

// needsParking reports whether the records can be kept only on servers that are parked.
func (t timing) needsParking() bool { return t.margin() < minSweptMargin }

// uses returns for how many scales a record is used, if clocks differ by as much as they may.
func (t timing) uses() time.Duration {
	if t.sliding {
		return 3
	}
	return 2
}

// useEnd returns when the record of a bucket is not used any more, whatever the clocks of clients show.
func (t timing) useEnd(bucket int64) time.Time { return t.end(bucket).Add((t.uses() - 1) * t.scale) }

// countsUntil returns until when the hits of a bucket count, by the clock of a client.
func (t timing) countsUntil(bucket int64) time.Time { return t.useEnd(bucket).Add(-t.scale) }

// bucket returns the number of the bucket in which now lies.
func (t timing) bucket(now time.Time) int64 {
	ns := now.UnixNano()
	b := ns / int64(t.scale)
	if ns%int64(t.scale) < 0 {
		b--
	}
	return b
}

// end returns the end of a bucket.
func (t timing) end(bucket int64) time.Time { return time.Unix(0, (bucket+1)*int64(t.scale)) }

// unusable reports whether no client uses the name of a bucket's record again, if clocks differ by
// less than a scale, and requests take less than a few seconds.
func (t timing) unusable(bucket int64, now time.Time) bool {
	return !now.Before(t.useEnd(bucket).Add(min(5*time.Second, t.margin()/4)))
}

// margin returns for how long a record exists at least after its window is over for all clients.
func (t timing) margin() time.Duration {
	return time.Duration(t.ttl)*t.unit.Duration() - t.uses()*t.scale
}

// marginUnits returns the margin in units of the TTL, rounded down.
func (t timing) marginUnits() uint64 { return uint64(t.margin() / t.unit.Duration()) }

// sweepInterval returns at which interval a server that is not parked must be swept.
func (t timing) sweepInterval() time.Duration {
	return max((t.margin()-min(5*time.Second, t.margin()/4)-sweepMargin)/3, time.Millisecond)
}
