package algorithms_test

import (
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

// references are the reference limiters.
var references = map[throttr.Algorithm]func(rate) limiter{
	window.TokenBucket:    newReferenceBucket,
	throttr.SlidingWindow: newReferenceSliding,
	window.SlidingLog:     newReferenceLog,
}

// faulty are limiters that allow a little more than their algorithm.
var faulty = []struct {
	algorithm throttr.Algorithm
	fault     string
	start     func(rate) limiter
}{
	{throttr.FixedWindow, "windows of the limit and one", func(r rate) limiter { return newFixed(rate{r.scale, r.limit + 1}) }},
	{throttr.AlignedWindow, "windows of the limit and one", func(r rate) limiter { return newFixed(rate{r.scale, r.limit + 1}) }},
	{window.SlidingLog, "fixed windows", newFixed},
	{window.SlidingLog, "a scale less a nanosecond", func(r rate) limiter { return newReferenceLog(rate{r.scale - 1, r.limit}) }},
	{window.SlidingLog, "one hit is forgotten", func(r rate) limiter {
		l := &referenceLog{rate: r}
		return func(at time.Duration, n uint64) decision {
			d := l.hit(at, n)
			if d.allowed && len(l.hits) == int(r.limit)/2+1 {
				l.sum -= l.hits[len(l.hits)-1].N
				l.hits = l.hits[:len(l.hits)-1]
			}
			return d
		}
	}},
	{window.TokenBucket, "a larger bucket", func(r rate) limiter {
		return newReferenceBucket(rate{r.scale / time.Duration(r.limit) * time.Duration(r.limit+1), r.limit + 1})
	}},
	{window.TokenBucket, "the time of a hit is rounded down to nanoseconds", func(r rate) limiter {
		return newReferenceBucket(rate{max(1, r.scale/time.Duration(r.limit)) * time.Duration(r.limit), r.limit})
	}},
	{window.TokenBucket, "fixed windows", newFixed},
	{throttr.SlidingWindow, "the weighted count is rounded down", func(r rate) limiter {
		s := &referenceSliding{rate: r}
		return func(at time.Duration, n uint64) decision {
			d := s.hit(at, n)
			left := uint64(s.scale - at%s.scale)
			if !d.allowed && s.before*left/uint64(s.scale)+s.count+n <= s.limit {
				s.count += n
				return decision{allowed: true}
			}
			return d
		}
	}},
	{throttr.SlidingWindow, "fixed windows", newFixed},
}

// newFixed returns a limiter with fixed windows that are aligned.
func newFixed(r rate) limiter {
	bucket, count := time.Duration(0), uint64(0)
	return func(at time.Duration, n uint64) decision {
		if at/r.scale != bucket {
			bucket, count = at/r.scale, 0
		}
		if count+n > r.limit {
			return decision{retryAfter: r.scale - at%r.scale}
		}
		count += n
		return decision{allowed: true}
	}
}
