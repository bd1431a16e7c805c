package memory

import (
	"math"
	"math/bits"
	"time"
)

// The entry of a token bucket has one time, when the bucket is full again if nobody hits. A hit of
// n moves it by n*scale/limit from now, or from where it is if that is later, and is granted if it
// is then at most one scale away. This is the generic cell rate algorithm (GCRA).
//
// That time is a multiple of 1/limit ns, so nothing is rounded for limits up to maxParts:
//   - start is the time, rounded up to a nanosecond, less one scale: entry.end returns the time.
//   - The lower half of meta is what rounding up has added, in parts: see parts.
//   - count is the limit of the last call.
//
// Inc and Set have no limit. If a full bucket is taken from without a limit, its entry is pending
// until a call names one: start is now, and count is what was taken.

const (
	// pending is a bit of the lower half of meta.
	pending = 1 << 31
	// maxParts is the largest number of parts of a nanosecond. For higher limits, the time of a hit
	// is rounded up to a part.
	maxParts = 1 << 31
)

// parts returns the number of parts of a nanosecond.
func parts(limit uint64) uint64 { return min(limit, maxParts) }

// excess returns what rounding up has added to the start, in parts.
func (e *entry) excess() uint64 { return e.meta & (maxParts - 1) }

func (e *entry) pending() bool { return e.meta&pending != 0 }

// level is how full a bucket is: start and excess as of an entry.
type level struct {
	start  int64
	excess uint64
}

// setLevel stores a level.
func (e *entry) setLevel(l level, limit uint64) {
	e.start, e.count = l.start, limit
	e.meta = e.meta&^math.MaxUint32 | l.excess
}

// level returns the level of e, with the parts of a limit. That of a new entry is that of a full
// bucket.
func (e *entry) level(now int64, limit uint64) level {
	switch {
	case e.generation() == 0:
		return level{start: int64(minus(now, int64(e.scale)))}
	case e.pending():
		l := level{start: int64(minus(e.start, int64(e.scale)))}.add(e.count, limit, e.scale, e.start)
		if full := int64(minus(now, int64(e.scale))); l.start <= full {
			return level{start: full}
		}
		return l
	case e.count == limit:
		return level{e.start, e.excess()}
	default:
		hi, lo := bits.Mul64(e.excess(), parts(limit))
		excess, _ := bits.Div64(hi, lo, parts(e.count))
		return level{e.start, excess}
	}
}

// mulDiv returns x*y/z and the remainder. The quotient must be less than 2^64.
func mulDiv(x, y, z uint64) (quotient, rest uint64) {
	hi, lo := bits.Mul64(x, y)
	if hi == 0 {
		return lo / z, lo % z
	}
	return bits.Div64(hi, lo, z)
}

// refill returns in which time n of limit tokens come back: whole nanoseconds, and parts. It rounds
// up if up is true, and down otherwise. n*scale/limit must be less than 2^64, as it is for n up to
// limit.
func refill(n, limit uint64, scale time.Duration, up bool) (nanos, part uint64) {
	nanos, part = mulDiv(n, uint64(scale), limit)
	if limit <= maxParts {
		return nanos, part
	}
	part, rest := mulDiv(part, maxParts, limit)
	if up && rest > 0 {
		if part++; part == maxParts {
			return nanos + 1, 0
		}
	}
	return nanos, part
}

// add returns the level after n were taken at now, beyond any limit. A bucket can owe almost as
// much as it holds. So it is full in two scales at most, and entry.active holds.
func (l level) add(n, limit uint64, scale time.Duration, now int64) level {
	most := level{start: now + int64(min(scale-1, minus(math.MaxInt64, max(now, 0))))}
	if hi, _ := bits.Mul64(n, uint64(scale)); hi >= limit {
		return most
	}
	nanos, part := refill(n, limit, scale, true)
	if part > l.excess {
		if nanos++; nanos == 0 {
			return most
		}
		l.excess += parts(limit)
	}
	l.excess -= part
	if nanos > uint64(most.start)-uint64(l.start) {
		return most
	}
	l.start += int64(nanos)
	return l
}

// used returns how many of limit tokens a bucket lacks, rounded up.
func (l level) used(now int64, limit uint64, scale time.Duration) uint64 {
	if minus(l.start, now) <= -scale {
		return 0
	}
	nanos := uint64(l.start) - uint64(now) + uint64(scale)
	excess := l.excess
	if limit > maxParts {
		hi, lo := bits.Mul64(excess, limit)
		excess, _ = bits.Div64(hi, lo, maxParts)
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

// tokens returns how many tokens the bucket of e lacks, by the limit of the last call.
func (e *entry) tokens(now int64) uint64 {
	if e.generation() == 0 || e.pending() {
		return e.count
	}
	return level{e.start, e.excess()}.used(now, e.count, e.scale)
}

// takeTokens takes n if there are so many of limit tokens. A call that names a limit ends a pending
// entry, even if it is refused.
func (e *entry) takeTokens(now int64, limit, n uint64) (v verdict) {
	if limit == 0 {
		v.count = e.tokens(now)
		if v.granted = n == 0 && v.count == 0; !v.granted {
			v.wait = e.leftOrScale(now)
		}
		return v
	}
	l := e.level(now, limit)
	if e.pending() {
		e.setLevel(l, limit)
		v.changed = true
	}
	if n > limit {
		v.count, v.wait = l.used(now, limit, e.scale), e.leftOrScale(now)
		return v
	}
	after, taken := l.take(now, limit, n, e.scale)
	if taken.changed {
		if e.count != limit && e.generation() > 0 {
			e.meta = 0 // the IDs of takes by another limit are void: see giveBackTokens
		}
		e.setLevel(after, limit)
	}
	taken.changed = taken.changed || v.changed
	return taken
}

// take takes n of limit tokens if there are so many. It returns the level after that. N is at most
// limit.
func (l level) take(now int64, limit, n uint64, scale time.Duration) (after level, v verdict) {
	nanos, part := refill(n, limit, scale, true)
	after = level{l.start, l.excess - part}
	if part > l.excess {
		nanos++
		after.excess += parts(limit)
	}
	switch room := uint64(now) - uint64(l.start); {
	case l.start > now:
		v.wait = plus(minus(l.start, now), time.Duration(nanos))
	case nanos > room:
		v.wait = time.Duration(nanos - room)
	default:
		after.start += int64(nanos)
		v.granted, v.changed, v.count = true, n > 0, after.used(now, limit, scale)
		return after, v
	}
	v.count = l.used(now, limit, scale)
	return l, v
}

// takeAgain makes a take from a bucket that is not full by the same limit as the one before, as most
// are. It returns false, and does nothing, if the take is another one.
func (r record) takeAgain(now int64, limit, n uint64) (v verdict, end int64, ok bool) {
	e := r.entry()
	if e.count != limit || n > limit || limit == 0 || e.pending() || !e.active(now) {
		return v, 0, false
	}
	l, v := level{e.start, e.excess()}.take(now, limit, n, e.scale)
	if v.changed {
		e.setLevel(l, limit)
		r.setState(&e)
	}
	return v, after(l.start, e.scale), true
}

// leftOrScale returns how long a window stays active, or the scale if it is new or over.
func (e *entry) leftOrScale(now int64) time.Duration {
	if left := minus(e.end(), now); e.generation() > 0 && left > 0 {
		return left
	}
	return e.scale
}

// addTokens takes n beyond any limit.
func (e *entry) addTokens(now int64, n uint64) {
	if e.generation() > 0 && !e.pending() {
		e.setLevel(level{e.start, e.excess()}.add(n, e.count, e.scale, now), e.count)
		return
	}
	if e.count += n; e.count < n {
		e.count = math.MaxUint64
	}
	e.start, e.meta = now, e.meta&^math.MaxUint32|pending
}

// tick is a part of the scale, in nanoseconds: the unit in which a generation counts what is given
// back.
func (e *entry) tick() uint64 { return uint64(e.scale)>>16 + 1 }

// giveBackTokens gives n back of the take after which the start was at, rounded down. The bucket
// was full one scale after at then. The part of the take that was before now has come back by
// itself, so only what is after now can be given back.
//
// What others give back that have taken before makes that time earlier. So whatever is given back
// moves the times in the IDs of all takes: the generation grows by as many ticks, rounded up.
func (e *entry) giveBackTokens(now, at int64, n uint64) bool {
	if e.pending() || at > now || minus(now, at) >= e.scale {
		return false
	}
	l, full := level{e.start, e.excess()}, int64(minus(now, int64(e.scale)))
	lower := level{start: full}
	if floor := l.start - int64(min(l.excess, 1)); floor > at { // others have taken since
		lower = level{full + (l.start - at), l.excess}
	}
	most := uint64(l.start) - uint64(lower.start)
	nanos, part := refill(min(n, e.count), e.count, e.scale, false)
	if l.excess += part; l.excess >= parts(e.count) {
		nanos++
		l.excess -= parts(e.count)
	}
	if nanos > most || nanos == most && l.excess > lower.excess {
		l, nanos = lower, most
	} else {
		l.start -= int64(nanos)
	}
	e.setLevel(l, e.count)
	e.setGeneration(max(1, uint32(e.generation()+(nanos+e.tick())/e.tick())))
	return true
}
