package memory

import (
	"math"
	"math/bits"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// The state of a token bucket has one time, when the bucket is full again if nobody hits. A hit of
// n moves it by n*scale/max from now, or from where it is if that is later, and is granted if it
// is then at most as far away as an empty bucket takes to fill: holds*scale/max. This is the generic
// cell rate algorithm (GCRA). What is charged moves it to at most twice as far away.
//
// That time is a multiple of 1/max ns, so nothing is rounded for a Max up to maxParts:
//   - start is the time, rounded up to a nanosecond, less one scale: state.end returns the time.
//   - The lower half of meta is what rounding up has added, in parts: see parts.
//   - count is the Max of the last call.
//   - The reach is how far away the time may be, see reachOf. If it is further, the clock has been set back.

// maxParts is the largest number of parts of a nanosecond. For a higher Max, the time of a hit is rounded up
// to a part.
const maxParts = 1 << 31

// bucket is the algorithm of token buckets.
var bucket = algorithm{
	rolling: true,
	most:    unlimited,
	end:     func(e state) int64 { return e.end() },
	active:  func(e state, now int64) bool { return e.fills(now) },
	count:   func(e state, now int64) uint64 { return e.tokens(now) },
	id:      bucketID,
	take: func(_ *shard, e state, at instant, r rule, n uint64) (state, verdict) {
		v := e.takeTokens(at.now, r, n)
		return e, v
	},
	charge: func(_ *shard, e state, at instant, r rule, n uint64) (state, uint64) {
		e.chargeTokens(at.now, r, n)
		return e, n
	},
	giveBack: func(_ *shard, e state, at instant, id int64, n uint64) (state, bool) {
		ok := e.giveBackTokens(at.now, id-e.ticks(), n)
		return e, ok
	},
}

// bucketID returns the ID of the take that was added last.
func bucketID(e state) int64 {
	at := e.start
	if e.excess() > 0 {
		at-- // rounded down
	}
	return at + e.ticks()
}

// reachOf returns the binary logarithm of a time, rounded up. A bucket has the largest reach of the times in
// which it has filled.
func reachOf(nanos uint64) uint64 { return uint64(bits.Len64(nanos)) }

func (e *state) reach() uint64 { return e.meta >> reachShift & 63 }

// fills reports whether the bucket is not full, and the clock has not been set back.
func (e *state) fills(now int64) bool {
	end := e.end()
	return now < end && uint64(end)-uint64(now) <= 2<<e.reach()
}

// parts returns the number of parts of a nanosecond.
func parts(limit uint64) uint64 { return min(limit, maxParts) }

// excess returns what rounding up has added to the start, in parts.
func (e *state) excess() uint64 { return e.meta & (maxParts - 1) }

// level is how full a bucket is: start and excess as of a state.
type level struct {
	start  int64
	excess uint64
}

// setLevel stores a level by the rate of a Max. The IDs of takes by another rate, or of a smaller reach, are
// void: see giveBackTokens.
func (e *state) setLevel(l level, limit, reach uint64) {
	if e.count != limit || e.reach() < reach {
		e.meta = max(e.reach(), reach) << reachShift // without a generation
	}
	e.start, e.count = l.start, limit
	e.meta = e.meta&^math.MaxUint32 | l.excess
}

// level returns the level of e, with the parts of a Max. That of a new state is that of a full
// bucket.
func (e *state) level(now int64, limit uint64) level {
	switch {
	case e.isNew():
		return level{start: int64(minus(now, int64(e.scale)))}
	case e.count == limit:
		return level{e.start, e.excess()}
	default:
		excess, _ := limits.MulDiv(e.excess(), parts(limit), parts(e.count))
		return level{e.start, excess}
	}
}

// refill returns in which time n tokens come back if limit do in a scale: whole nanoseconds, and parts. It
// rounds up if up is true, and down otherwise. n*scale/limit must be less than 2^64, as it is for n up to
// what the bucket holds.
func refill(n, limit uint64, scale time.Duration, up bool) (nanos, part uint64) {
	nanos, part = limits.MulDiv(n, uint64(scale), limit)
	if limit <= maxParts {
		return nanos, part
	}
	part, rest := limits.MulDiv(part, maxParts, limit)
	if up && rest > 0 {
		if part++; part == maxParts {
			return nanos + 1, 0
		}
	}
	return nanos, part
}

// fill returns in which time an empty bucket fills, rounded up to a part.
func (r rule) fill(scale time.Duration) (nanos, part uint64) {
	if r.holds == r.max {
		return uint64(scale), 0
	}
	return refill(r.holds, r.max, scale, true)
}

// add returns the level at which a time, in whole nanoseconds and parts, more is needed until the bucket is
// full. If that is over the largest int64, it is that.
func (l level) add(nanos, part, limit uint64) level {
	if part > l.excess {
		nanos++
		l.excess += parts(limit)
	}
	l.excess -= part
	if nanos > uint64(math.MaxInt64)-uint64(l.start) {
		return level{start: math.MaxInt64}
	}
	l.start += int64(nanos)
	return l
}

// before reports whether the bucket is full earlier at l than at m.
func (l level) before(m level) bool {
	return l.start < m.start || l.start == m.start && l.excess > m.excess
}

// used returns how many tokens a bucket lacks, rounded up.
func (l level) used(now int64, limit uint64, scale time.Duration) uint64 {
	if minus(l.start, now) <= -scale {
		return 0
	}
	nanos := uint64(l.start) - uint64(now) + uint64(scale)
	excess := l.excess
	if limit > maxParts {
		excess, _ = limits.MulDiv(excess, limit, maxParts)
	}
	hi, lo := bits.Mul64(nanos, limit)
	lo, under := bits.Sub64(lo, excess, 0)
	hi -= under
	if hi >= uint64(scale) {
		return math.MaxUint64
	}
	var n, rest uint64
	if hi == 0 { // most often: this division takes less time
		n, rest = lo/uint64(scale), lo%uint64(scale)
	} else {
		n, rest = bits.Div64(hi, lo, uint64(scale))
	}
	if rest > 0 && n < math.MaxUint64 {
		n++
	}
	return n
}

// tokens returns how many tokens the bucket of e lacks, by the Max of the last call.
func (e *state) tokens(now int64) uint64 {
	return min(level{e.start, e.excess()}.used(now, e.count, e.scale), window.Unlimited)
}

// takeTokens takes n if there are so many tokens.
func (e *state) takeTokens(now int64, r rule, n uint64) (v verdict) {
	if n > r.holds || r.max == 0 {
		if !e.isNew() {
			v.count = e.tokens(now)
		}
		if v.granted = n == 0 && v.count == 0; !v.granted {
			v.wait = window.Never
		}
		return v
	}
	after, reach, v := e.level(now, r.max).take(now, r, n, e.scale)
	if v.changed {
		e.setLevel(after, r.max, reach)
	}
	return v
}

// take takes n if there are so many tokens. It returns the level after that, and the reach of the bucket. N
// is at most what the bucket holds.
func (l level) take(now int64, r rule, n uint64, scale time.Duration) (after level, reach uint64, v verdict) {
	nanos, part := refill(n, r.max, scale, true)
	after = level{l.start, l.excess - part}
	if part > l.excess {
		nanos++
		after.excess += parts(r.max)
	}
	// The time until the bucket is full after the take may be as long as it takes to fill.
	full, fullPart := r.fill(scale)
	reach = reachOf(full)
	if after.excess+fullPart >= parts(r.max) {
		full++
	}
	if need := uint64(l.start) + uint64(scale) - uint64(now) + nanos; need > full {
		v.wait = time.Duration(min(need-full, uint64(window.Never)-1))
		v.count = min(l.used(now, r.max, scale), window.Unlimited)
		return l, reach, v
	}
	after.start += int64(nanos)
	v.granted, v.changed, v.count = true, n > 0, after.used(now, r.max, scale)
	return after, reach, v
}

// takeAgain makes a take from a bucket by the same Max as the one before, as most are. It returns false, and does
// nothing, if the take is another one, or the clock has been set back. Mu is held.
func (r *record) takeAgain(now int64, by rule, n uint64) (v verdict, end int64, ok bool) {
	e := r.state()
	full := now >= e.end()
	if e.count != by.max || n > by.holds || e.isNew() || !full && !e.fills(now) {
		return v, 0, false
	}
	l := level{e.start, e.excess()}
	if full { // what was taken before can't be given back any more, so the generation may stay
		l = level{start: int64(minus(now, int64(e.scale)))}
	}
	l, reach, v := l.take(now, by, n, e.scale)
	if e.reach() < reach {
		return verdict{}, 0, false
	}
	if v.changed {
		r.start, r.meta = l.start, e.meta&^math.MaxUint32|l.excess
	}
	return v, after(l.start, e.scale), true
}

// chargeTokens takes n. The bucket then lacks at most twice what it holds, or what it has lacked before.
func (e *state) chargeTokens(now int64, r rule, n uint64) {
	l := e.level(now, r.max)
	full, part := r.fill(e.scale)
	most := level{start: int64(minus(now, int64(e.scale)))}.add(full, part, r.max).add(full, part, r.max)
	after := most
	if hi, _ := bits.Mul64(n, uint64(e.scale)); hi < r.max {
		nanos, part := refill(n, r.max, e.scale, true)
		if nanos <= 2*full+1 { // otherwise it may overflow
			after = l.add(nanos, part, r.max)
		}
	}
	if most.before(after) {
		after = most
	}
	if after.before(l) {
		after = l
	}
	e.setLevel(after, r.max, reachOf(full))
}

// tick is a part of the reach, in nanoseconds: the unit in which a generation counts what is given
// back.
func (e *state) tick() uint64 { return 1<<e.reach()>>14 + 1 }

// ticks returns the amount by which the IDs of the takes of e, which are times, are moved.
func (e *state) ticks() int64 { return int64(e.generation() * e.tick()) }

// giveBackTokens gives n back of the take after which the start was at, rounded down. The bucket
// was full one scale after at then. The part of the take that was before now has come back by
// itself, so only what is after now can be given back.
//
// What others give back that have taken before makes that time earlier. So whatever is given back
// moves the times in the IDs of all takes: the generation grows by as many ticks, rounded up.
func (e *state) giveBackTokens(now, at int64, n uint64) bool {
	if left := at + int64(e.scale) - now; left <= 0 || left > 1<<e.reach() {
		return false
	}
	l, full := level{e.start, e.excess()}, int64(minus(now, int64(e.scale)))
	lower := level{start: full}
	if floor := l.start - int64(min(l.excess, 1)); floor > at { // others have taken since
		lower = level{full + (l.start - at), l.excess}
	}
	most := uint64(l.start) - uint64(lower.start)
	nanos, part := most, uint64(0)
	if hi, _ := bits.Mul64(n, uint64(e.scale)); hi < e.count { // otherwise it is more than most
		nanos, part = refill(n, e.count, e.scale, false)
	}
	if l.excess += part; l.excess >= parts(e.count) {
		nanos++
		l.excess -= parts(e.count)
	}
	if nanos > most || nanos == most && l.excess > lower.excess {
		l, nanos = lower, most
	} else {
		l.start -= int64(nanos)
	}
	e.start, e.meta = l.start, e.meta&^math.MaxUint32|l.excess
	e.setGeneration(e.generation() + (nanos+e.tick())/e.tick())
	return true
}
