package rediswindow

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// tokenBucket keeps token buckets. See lua/bucket.lua for what is stored.
//
// A token takes Scale/Max to come back, which is rounded up to a multiple of a unit: 2^-32 µs, or, if the
// scale is, or the bucket fills in, more than 17 minutes, more, so that both are less than 2^62 units.
var tokenBucket = &algorithm{
	letter: 'b', source: bucketLua, fast: newScript(bucketHitLua), most: upToMaxCount,
	appendArgs: appendTokens, describe: describeBucket,
	wait: func(t *window.Take, _ *window.Window, now int64, state []int64) time.Duration {
		whole, part := split(&t.Limit, tokenTime(&t.Limit)*(holds(&t.Limit)-t.N))
		return roundUp(state[0]-now-int64(whole), state[1]-int64(part))
	},
}

// fraction is how many bits of a number in a script are below a microsecond.
const fraction = 32

// fillTime returns in how many microseconds an empty bucket fills.
func fillTime(l *window.Limit) uint64 {
	hi, lo := bits.Mul64(holds(l), uint64(l.Scale.Microseconds()))
	if hi >= max(l.Max, 1) {
		return math.MaxUint64
	}
	fill, _ := bits.Div64(hi, lo, max(l.Max, 1))
	return fill
}

// unitsOf returns the binary logarithm of how many units a microsecond has.
func unitsOf(l *window.Limit) int {
	return max(0, min(fraction, 62-bits.Len64(max(uint64(l.Scale.Microseconds()), fillTime(l)))))
}

// tokenTime returns the time of a token in units.
func tokenTime(l *window.Limit) uint64 {
	units := uint64(l.Scale.Microseconds()) << unitsOf(l)
	return (units-1)/max(l.Max, 1) + 1
}

// split splits a time in units into whole microseconds and 2^-32 µs.
func split(l *window.Limit, t uint64) (whole, part uint64) {
	u := unitsOf(l)
	return t >> u, t & (1<<u - 1) << (fraction - u)
}

// appendTime appends a time in units as two numbers: whole microseconds, and 2^-32 µs.
func appendTime(args []string, l *window.Limit, t uint64) []string {
	whole, part := split(l, t)
	return append(args, strconv.FormatUint(whole, 10), strconv.FormatUint(part, 10))
}

func appendTokens(args []string, c *call) []string {
	l, most := &c.Limit, holds(&c.Limit)
	token := tokenTime(l)
	whole, part := split(l, token)
	args = append(args, strconv.FormatUint(whole, 10)+" "+strconv.FormatUint(part, 10))
	switch {
	case c.count: // a bucket owes at most as much as it holds
		args = appendTime(args, l, 2*token*most)
		return appendTime(args, l, token*min(c.N, 2*most))
	case c.N > most:
		return append(args, "-1", "0", "0", "0") // is refused
	default:
		args = appendTime(args, l, token*(most-c.N))
		return appendTime(args, l, token*c.N)
	}
}

// describeBucket describes a bucket, from which tokens have just been taken or not.
func describeBucket(l *window.Limit, taken bool, now int64, state []int64) window.Window {
	full, part, epoch, back := max(state[0], now), state[1], state[2], state[3]
	token, u := tokenTime(l), unitsOf(l)
	hi, lo := bits.Mul64(uint64(full-now), 1<<u)
	lo += uint64(part) >> (fraction - u) // no carry: these bits are 0
	count := uint64(MaxCount)
	if hi < token {
		q, r := bits.Div64(hi, lo, token)
		if r > 0 {
			q++
		}
		count = min(q, count)
	}
	w := rest(count, now, full)
	if count > 0 {
		w.Left = roundUp(full-now, part)
		w.ExpiresAt = time.UnixMicro(now).Add(w.Left)
	}
	if taken {
		w.ID = takeID(full+back, epoch)
	}
	return w
}

// roundUp returns a time in microseconds and 2^-32 µs, rounded up to microseconds: Redis has no
// finer time.
func roundUp(whole, part int64) time.Duration {
	if part > 0 {
		whole++
	}
	return micros(whole)
}
