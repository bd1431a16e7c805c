package memory

import (
	"math"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// The state of a sliding window has the counts of two aligned windows: the last one that was hit,
// and the one before.
//   - start is the start of the later one.
//   - The lower 48 bits of count are its count.
//   - The higher 16 bits of count and the lower half of meta are the count of the one before.

// maxSliding is the largest count of an aligned window of a sliding window, and so the largest
// limit.
const maxSliding = 1<<48 - 1

// slidingWindow is the algorithm of sliding windows.
var slidingWindow = algorithm{
	aligned: true,
	rolling: true,
	most:    func(*Backend) uint64 { return maxSliding },
	end:     func(e state) int64 { return e.slidingEnd() },
	active:  func(e state, now int64) bool { return e.activeUntil(e.slidingEnd(), now) },
	count:   func(e state, now int64) uint64 { w := e.at(now, 0); return w.count(now, e.scale) },
	id:      spreadID,
	take: func(_ *shard, e state, at instant, r rule, n uint64) (state, verdict) {
		v := e.takeSliding(at.now, e.firstStart(at), r.max, n)
		return e, v
	},
	charge: func(_ *shard, e state, at instant, _ rule, n uint64) (state, uint64) {
		e.addSliding(at.now, e.firstStart(at), n)
		return e, n
	},
	giveBack: func(_ *shard, e state, at instant, id int64, n uint64) (state, bool) {
		ok := e.giveBackSliding(at.now, id-e.spread(), n)
		return e, ok
	},
}

// firstStart returns the start of the present aligned window for a state that is new, and 0
// otherwise.
func (e *state) firstStart(at instant) int64 {
	if !e.isNew() {
		return 0
	}
	return at.ref.alignedStart(at.now, e.scale)
}

// sliding is the state of a sliding window at a time.
type sliding struct {
	start             int64 // of the present aligned window
	previous, current uint64
}

func (e *state) sliding() sliding {
	return sliding{e.start, e.count>>48<<32 | e.meta&math.MaxUint32, e.count & maxSliding}
}

func (e *state) setSliding(w sliding) {
	e.start = w.start
	e.count = w.previous>>32<<48 | w.current
	e.meta = e.meta&^math.MaxUint32 | w.previous&math.MaxUint32
}

// at returns the state of e at a time. If e is new, aligned is the start of the present aligned
// window.
func (e *state) at(now, aligned int64) sliding {
	if e.isNew() {
		return sliding{start: aligned}
	}
	w := e.sliding()
	if minus(now, w.start) >= e.scale {
		w = sliding{start: w.start + int64(e.scale), previous: w.current}
	}
	return w
}

// left returns for how long the present aligned window continues.
func (w *sliding) left(now int64, scale time.Duration) time.Duration {
	return plus(scale-max(0, min(scale, minus(now, w.start))), max(0, minus(w.start, now)))
}

// count returns the estimate: the count of the previous aligned window is weighted by the part of
// it that is less than a scale ago, and rounded up.
func (w *sliding) count(now int64, scale time.Duration) uint64 {
	if w.previous == 0 {
		return w.current
	}
	weighted, rest := limits.MulDiv(w.previous, uint64(min(scale, w.left(now, scale))), uint64(scale))
	if rest > 0 {
		weighted++
	}
	return weighted + w.current
}

// wait returns how long it takes until n of limit fit, if they do not now.
func (w *sliding) wait(now int64, scale time.Duration, limit, n uint64) time.Duration {
	room, left := limit-n, w.left(now, scale)
	if w.current <= room {
		return left - weighs(w.previous, room-w.current, scale)
	}
	return plus(left, scale-weighs(w.current, room, scale))
}

// weighs returns for how long at most count weighs room or less before its weight is 0. Room is
// less than count.
func weighs(count, room uint64, scale time.Duration) time.Duration {
	d, _ := limits.MulDiv(room, uint64(scale), count)
	return time.Duration(d)
}

// takeSliding takes n if the estimate stays within limit.
func (e *state) takeSliding(now, aligned int64, limit, n uint64) (v verdict) {
	w := e.at(now, aligned)
	v.count = w.count(now, e.scale)
	switch {
	case n > limit:
		v.wait = window.Never
	case v.count > limit-n:
		v.wait = w.wait(now, e.scale, limit, n)
	default:
		v.granted = true
		v.count += n
		if w.current += n; n > 0 {
			e.setSliding(w)
			v.changed = true
		}
	}
	return v
}

// slideAgain makes a take from an active sliding window if it is in the same aligned window as the one
// before, and granted, as most are. It returns false, and does nothing, if it is not.
func (r *record) slideAgain(now int64, limit, n uint64) (v verdict, end int64, ok bool) {
	e := r.state()
	w := e.sliding()
	if e.isNew() || n == 0 || limit > maxSliding || now < w.start || now-w.start >= int64(e.scale) || w.previous+w.current == 0 {
		return v, 0, false
	}
	v.count = w.count(now, e.scale)
	if n > limit || v.count > limit-n {
		return v, 0, false
	}
	w.current += n
	e.setSliding(w)
	r.set(e)
	v.granted, v.count = true, v.count+n
	return v, e.slidingEnd(), true
}

// addSliding adds n to the present aligned window. Its count stays at maxSliding.
func (e *state) addSliding(now, aligned int64, n uint64) {
	w := e.at(now, aligned)
	w.current += min(n, maxSliding-w.current)
	e.setSliding(w)
}

// giveBackSliding gives n back to the aligned window that started at at.
func (e *state) giveBackSliding(now, at int64, n uint64) bool {
	w := e.sliding()
	switch at {
	case w.start:
		w.current -= min(n, w.current)
	case w.start - int64(e.scale):
		if minus(now, w.start) >= e.scale {
			return false
		}
		w.previous -= min(n, w.previous)
	default:
		return false
	}
	e.setSliding(w)
	return true
}

// slidingEnd returns when the count is 0: one scale after the end of the last aligned window that
// has hits.
func (e *state) slidingEnd() int64 {
	switch w := e.sliding(); {
	case w.current > 0:
		return after(after(w.start, e.scale), e.scale)
	case w.previous > 0:
		return after(w.start, e.scale)
	default:
		return w.start
	}
}
