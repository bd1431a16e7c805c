package memory

import (
	"math"

	"github.com/throttr-go/throttr/window"
)

// fixed returns the algorithm of fixed windows, or of aligned ones.
func fixed(aligned bool) algorithm {
	return algorithm{
		aligned: aligned,
		most:    unlimited,
		end:     func(e entry) int64 { return e.end() },
		active:  func(e entry, now int64) bool { return e.active(now) },
		count:   func(e entry, _ int64) uint64 { return e.count },
		id:      func(e entry) int64 { return e.id() },
		take: func(s *shard, e entry, now int64, r rule, n uint64) (entry, verdict) {
			v := verdict{count: e.count}
			switch {
			case n > r.max:
				v.wait = window.Never
			case e.count > r.max-n:
				v.wait = e.left(e.end(), now)
			default:
				v.granted, v.changed, v.count = true, n > 0, e.count+n
				e = s.addFixed(e, now, aligned, n)
			}
			return e, v
		},
		charge: func(s *shard, e entry, now int64, _ rule, n uint64) (entry, uint64) {
			return s.addFixed(e, now, aligned, n), n
		},
		giveBack: func(_ *shard, e entry, _, id int64, n uint64) (entry, bool) {
			if e.id() != id || e.count >= window.Unlimited {
				return e, false
			}
			e.count -= min(n, e.count)
			return e, true
		},
		again: func(b *Backend, s *shard, r record, limit, n uint64) (v verdict, now, end int64, ok bool) {
			e := r.entry()
			now, end = s.hitTime(b, &e, aligned, limit, n), e.end()
			if !e.active(now) || n > limit {
				return v, now, end, false
			}
			if v.count = e.count; e.count > limit-n {
				v.wait = minus(end, now)
				return v, now, end, true
			}
			v.granted, v.count = true, e.count+n
			r.setCount(v.count)
			return v, now, end, true
		},
	}
}

// addFixed adds n to the count, which stays at the largest. If e is new, the window starts now, or with the
// aligned window.
func (s *shard) addFixed(e entry, now int64, aligned bool, n uint64) entry {
	if e.isNew() {
		if e.start = now; aligned {
			e.start = s.alignedStart(now, e.scale)
		}
	}
	e.add(n)
	return e
}

// id returns the identity of a fixed window. If a shard opens 2^26 windows, one of them has the
// generation of the first; but it hardly starts in the same nanosecond of four minutes, too.
func (e *entry) id() int64 {
	const low = 1<<generationShift - 1
	return int64(e.meta&^low | uint64(e.start)&low)
}

// add adds n to the count, which stays at the largest.
func (e *entry) add(n uint64) {
	if e.count += n; e.count > math.MaxInt64 { // neither is larger than that
		e.count = math.MaxInt64
	}
}

// hitTime returns the time of a hit on an entry's window: that of the coarse clock if it is
// good enough. If there is no window, the entry is new. The mutex is held.
//
// The clock is not read for a hit within the limit if the coarse clock shows that the window
// has a long time left. Such a hit is allowed whatever the exact time. If the coarse clock is
// so late that the window is over, the hit counts in that window nevertheless. It is within
// the window's limit, so no window gets more than its limit, and no hit is denied wrongly.
func (s *shard) hitTime(b *Backend, e *entry, aligned bool, limit, n uint64) int64 {
	if aligned {
		now := s.now(b)
		return now + s.ahead
	}
	if e.isNew() || e.count >= limit || n > limit-e.count {
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
