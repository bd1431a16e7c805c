package algorithms_test

import "time"

// allowedHit is a hit that was allowed.
type allowedHit struct {
	At time.Duration // since any origin
	N  uint64        // the increment
}

// interval is an interval of time, with the sum of the increments in it.
type interval struct {
	From time.Duration // the interval begins here; the time of a hit
	Hits uint64
}

// busiestInterval returns the interval [From, From+length) with the most hits, and of several the earliest.
// The hits are in the order of their times. Without hits, it returns the zero interval.
func busiestInterval(hits []allowedHit, length time.Duration) (most interval) {
	sum, first := uint64(0), 0
	for _, h := range hits {
		sum += h.N
		for h.At-hits[first].At >= length {
			sum -= hits[first].N
			first++
		}
		if sum > most.Hits {
			most = interval{hits[first].At, sum}
		}
	}
	return most
}

// largestBurst returns the interval of any length that exceeds a rate of limit hits per scale by the most,
// and of several the one that ends first. Its Hits are what it has beyond that rate:
//
//	hits in the interval - length·limit/scale, rounded up
//
// The interval includes its end. A token bucket that holds limit tokens allows at most limit of
// them. The hits are in the order of their times. The products must fit: those of the limit and of the longest pause, in
// nanoseconds, and of the hits in a burst and the scale.
func largestBurst(hits []allowedHit, scale time.Duration, limit uint64) (worst interval) {
	// The level is what the interval that ends now has beyond the rate, times the scale: of all
	// intervals that end now, the largest. It is never below 0, as an interval may begin now.
	var level, highest uint64
	var from, last time.Duration
	for _, h := range hits {
		if drained := uint64(h.At-last) * limit; drained < level {
			level -= drained
		} else {
			level, from = 0, h.At
		}
		last = h.At
		level += h.N * uint64(scale)
		if level > highest {
			highest, worst.From = level, from
		}
	}
	worst.Hits = highest / uint64(scale)
	if highest%uint64(scale) > 0 {
		worst.Hits++
	}
	return worst
}
