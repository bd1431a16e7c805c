package memory

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// HitCount is [Backend.Hit] for a caller that needs only the count, the time left and the end of a
// fixed window: with a rolling algorithm, it returns an error that matches [errors.ErrUnsupported],
// see [Backend.TakeCount]. A RateLimit calls it, as a [window.Window] takes longer to copy than a
// hit to count. If the hit is within limit, left may be up to 0.1 s too long. Errors are those of
// Hit.
func (b *Backend) HitCount(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (
	count uint64, left time.Duration, end time.Time, err error) {
	if err := check(ctx, scale); err != nil {
		return 0, 0, end, failed("hit", key, err)
	}
	if b.rolling {
		return 0, 0, end, failed("hit", key, errNotFixed)
	}
	s, k := b.locate(key, scale)
	s.mu.Lock()
	e, now, err := b.hit(s, k, limit, increment)
	if err != nil {
		s.mu.Unlock()
		return 0, 0, end, failed("hit", key, err)
	}
	ends := e.end()
	if ends != s.lastEnd.nanos { // timeOf would not be inlined
		s.lastEnd = timestamp{s.reference.time.Add(minus(ends, s.reference.nanos)), ends}
	}
	end = s.lastEnd.time
	s.mu.Unlock()
	return e.count, minus(ends, now), end, nil
}

// errNotFixed is the error of a HitCount or TakeCounts with a rolling algorithm.
var errNotFixed = fmt.Errorf("memory: this call is for fixed windows: %w", errors.ErrUnsupported)

// hit counts a hit, and returns its window and its time. The mutex is held.
//
// If the clock is read, that takes half of the time of a hit. It is read under the mutex, so
// that the order of times is the order of counts. The mutex is unlocked without a defer, which
// takes 2 ns.
//
// The clock is not read for a hit within the limit if the coarse clock shows that the window
// has a long time left. Such a hit is allowed whatever the exact time. If the coarse clock is
// so late that the window is over, the hit counts in that window nevertheless. It is within
// the window's limit, so no window gets more than its limit, and no hit is denied wrongly.
func (b *Backend) hit(s *shard, k id, limit, increment uint64) (e entry, now int64, err error) {
	r := s.find(k)
	if r == nil {
		k, r = s.findShared(b, k)
	}
	if r != nil {
		e = r.entry()
	}
	now = s.hitTime(b, &e, limit, increment)
	if e.active(now) {
		e.add(increment, now)
		r.setCount(&e)
		return e, now, nil
	}
	e, err = b.open(s, k, r, increment, now)
	return e, now, err
}

// timeOf returns the time of day of the end of a window. The mutex is held.
func (s *shard) timeOf(ends int64) time.Time {
	if ends != s.lastEnd.nanos {
		s.lastEnd = timestamp{s.reference.time.Add(minus(ends, s.reference.nanos)), ends}
	}
	return s.lastEnd.time
}

// hitTime returns the time of a hit on an entry's window: that of the coarse clock if it is
// good enough, see [Backend.hit]. If there is no window, the entry is zero. The mutex is held.
func (s *shard) hitTime(b *Backend, e *entry, limit, increment uint64) int64 {
	if e.scale == 0 || e.count >= limit || increment > limit-e.count {
		return s.now(b)
	}
	last, ok := b.coarse.longBefore(e.end(), e.scale)
	if ok && last-s.reference.nanos < referenceMaxAge {
		return max(last, e.start)
	}
	now := s.now(b)
	b.coarse.start(now)
	return now
}
