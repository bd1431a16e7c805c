package memory

import (
	"math"

	"github.com/throttr-go/throttr/internal/fastpath"
	"github.com/throttr-go/throttr/window"
)

// fixed returns the algorithm of fixed windows, or of aligned ones.
func fixed(aligned bool) algorithm {
	return algorithm{
		aligned: aligned,
		most:    unlimited,
		end:     func(e state) int64 { return e.end() },
		active:  func(e state, now int64) bool { return e.active(now) },
		count:   func(e state, _ int64) uint64 { return e.count },
		id:      func(e state) int64 { return fixedID(e.start, e.meta) },
		take: func(_ *shard, e state, at instant, r rule, n uint64) (state, verdict) {
			v := verdict{count: e.count}
			switch {
			case n > r.max:
				v.wait = window.Never
			case e.count > r.max-n:
				v.wait = e.left(e.end(), at.now)
			default:
				v.granted, v.changed, v.count = true, n > 0, e.count+n
				e = e.addFixed(at, aligned, n)
			}
			return e, v
		},
		charge: func(_ *shard, e state, at instant, _ rule, n uint64) (state, uint64) {
			return e.addFixed(at, aligned, n), n
		},
		giveBack: func(_ *shard, e state, _ instant, id int64, n uint64) (state, bool) {
			if fixedID(e.start, e.meta) != id || e.count >= window.Unlimited {
				return e, false
			}
			e.count -= min(n, e.count)
			return e, true
		},
	}
}

// addFixed adds n to the count, which stays at the largest. If e is new, the window starts now, or with the
// aligned window.
func (e state) addFixed(at instant, aligned bool, n uint64) state {
	if e.isNew() {
		if e.start = at.now; aligned {
			e.start = at.ref.alignedStart(at.now, e.scale)
		}
	}
	e.add(n)
	return e
}

// fixedID returns the identity of a fixed window. If a shard opens 2^26 windows, one of them has the
// generation of the first; but it hardly starts in the same nanosecond of four minutes, too.
func fixedID(start int64, meta uint64) int64 {
	const low = 1<<generationShift - 1
	return int64(meta&^low | uint64(start)&low)
}

// add adds n to the count, which stays at the largest.
func (e *state) add(n uint64) {
	if e.count += n; e.count > math.MaxInt64 { // neither is larger than that
		e.count = math.MaxInt64
	}
}

// fixedTime returns the time of a call on a fixed or aligned window that is within its limit: that of the coarse clock if
// it is good enough.
//
// The clock is not read for a call within the limit if the coarse clock shows that the window
// has a long time left. Such a call is allowed whatever the exact time. If the coarse clock is
// so late that the window is over, the call counts in that window nevertheless. It is within
// the window's limit, so no window gets more than its limit, and no call is denied wrongly.
func (c *clock) fixedTime(e *state, aligned bool) (int64, *reference) {
	if aligned {
		return c.alignedNow()
	}
	if last, ok := c.coarse(e.end(), e.scale); ok {
		return max(last, e.start), c.reference.Load()
	}
	now, ref := c.now()
	c.start(now)
	return now, ref
}

// alignedNow returns the time of states that follow the wall clock.
func (c *clock) alignedNow() (int64, *reference) {
	now, ref := c.now()
	return now + ref.ahead, ref
}

// countCoarsely makes a hit or a take on a fixed window if that is within the limit and active by the coarse clock, as most
// are. It returns false, and does nothing, otherwise. Mu is held.
func (r *record) countCoarsely(c *clock, limit, n uint64) (count uint64, now, end, id int64, ok bool) {
	if r.busy() || r.meta>>generationShift == 0 || r.count > limit || n > limit-r.count {
		return 0, 0, 0, 0, false
	}
	end = after(r.start, r.scale)
	if now, ok = c.coarse(end, r.scale); !ok { // see fixedTime
		return 0, 0, 0, 0, false
	}
	r.count += n
	r.calls++
	return r.count, max(now, r.start), end, fixedID(r.start, r.meta), true
}

// countAgain makes a hit or a take on an active window, fixed or aligned. It returns false, and does nothing, if the window is
// not active. Mu is held.
func (r *record) countAgain(c *clock, aligned bool, op fastpath.Op, limit, n uint64) (v verdict, now, end int64, ref *reference, ok bool) {
	e := r.state()
	if aligned {
		now, ref = c.alignedNow()
	} else {
		now, ref = c.now()
	}
	if end = e.end(); e.isNew() || !e.activeUntil(end, now) || n > limit {
		return v, now, end, ref, false
	}
	if v.granted = e.count <= limit-n; v.granted && !aligned && op&exact == 0 {
		c.start(now) // for countCoarsely
	}
	if v.granted || op&fastpath.Hit != 0 {
		e.add(n)
		r.count = e.count
	}
	if v.count = e.count; !v.granted {
		v.wait = minus(end, now)
	}
	return v, now, end, ref, true
}
