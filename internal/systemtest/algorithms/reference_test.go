package algorithms_test

import (
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

// The reference limiters are written from the definitions of the algorithms, and as simply as
// possible. Increments are at most the limit.
var references = map[throttr.Algorithm]func(rate) limiter{
	window.TokenBucket:    newReferenceBucket,
	throttr.SlidingWindow: newReferenceSliding,
	window.SlidingLog:     newReferenceLog,
}

// referenceLog is a sliding log: the hits that were allowed less than a scale ago.
type referenceLog struct {
	rate
	hits []allowedHit
	sum  uint64
}

func newReferenceLog(r rate) limiter { return (&referenceLog{rate: r}).hit }

func (l *referenceLog) hit(at time.Duration, n uint64) decision {
	l.forget(at)
	if l.sum+n <= l.limit {
		l.hits, l.sum = append(l.hits, allowedHit{At: at, N: n}), l.sum+n
		return decision{allowed: true}
	}
	left := l.sum
	for _, h := range l.hits {
		if left -= h.N; left+n <= l.limit {
			return decision{retryAfter: h.At + l.scale - at}
		}
	}
	panic("an increment above the limit")
}

func (l *referenceLog) forget(at time.Duration) {
	for len(l.hits) > 0 && at-l.hits[0].At >= l.scale {
		l.sum -= l.hits[0].N
		l.hits = l.hits[1:]
	}
}

// referenceBucket is a token bucket. Its level is what was taken and is not refilled yet, times the
// scale, so that limit refills in a nanosecond.
type referenceBucket struct {
	rate
	level, last uint64
}

func newReferenceBucket(r rate) limiter { return (&referenceBucket{rate: r}).hit }

func (b *referenceBucket) hit(at time.Duration, n uint64) decision {
	scale := uint64(b.scale)
	if passed := uint64(at) - b.last; passed >= scale {
		b.level = 0 // a scale refills everything
	} else {
		b.level -= min(b.level, passed*b.limit)
	}
	b.last = uint64(at)
	if b.level+n*scale <= b.limit*scale {
		b.level += n * scale
		return decision{allowed: true}
	}
	return decision{retryAfter: time.Duration(divideUp(b.level+n*scale-b.limit*scale, b.limit))}
}

// referenceSliding is a sliding window: the count of the present bucket, and that of the one before,
// weighted by how much of it lies in the last scale, rounded up.
type referenceSliding struct {
	rate
	bucket        time.Duration // the number of the present bucket
	before, count uint64
}

func newReferenceSliding(r rate) limiter { return (&referenceSliding{rate: r}).hit }

func (s *referenceSliding) hit(at time.Duration, n uint64) decision {
	for s.bucket < at/s.scale {
		s.before, s.count = s.count, 0
		if s.bucket++; s.bucket < at/s.scale {
			s.before, s.bucket = 0, at/s.scale
		}
	}
	left := uint64(s.scale - at%s.scale) // of the present bucket
	if divideUp(s.before*left, uint64(s.scale))+s.count+n <= s.limit {
		s.count += n
		return decision{allowed: true}
	}
	if s.count+n <= s.limit { // when enough of the bucket before has left
		return decision{retryAfter: time.Duration(left - (s.limit-n-s.count)*uint64(s.scale)/s.before)}
	}
	// When enough of the present bucket has left, in the next one.
	return decision{retryAfter: time.Duration(left + uint64(s.scale) - (s.limit-n)*uint64(s.scale)/s.count)}
}

func divideUp(a, b uint64) uint64 {
	if a%b > 0 {
		return a/b + 1
	}
	return a / b
}
