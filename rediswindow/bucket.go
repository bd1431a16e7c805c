package rediswindow

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// tokenBucket keeps token buckets. Their state is full and part, epoch and back.
//
// A token takes Scale/Max to come back, which is rounded up to a multiple of a unit: 2^-32 µs, or, if the
// scale is, or the bucket fills in, more than 17 minutes, more, so that both are less than 2^62 units.
var tokenBucket = &algorithm{
	letter: 'b', size: 6*8 + 2, most: upToMaxCount, appendNumbers: appendTokens, describe: describeBucket,
	read: func(value string) state {
		return state{int64(float(value)), int64(float(value[8:])), int64(value[16]) | int64(value[17])<<8, int64(float(value[34:]))}
	},
	before: func(s state, p *policy, takes int) state {
		whole, part := split(&p.limit, tokenTime(&p.limit)*p.n)
		s[0], s[1] = s[0]-int64(whole)*int64(takes), s[1]-int64(part)*int64(takes)
		s[0], s[1] = s[0]+s[1]>>fraction, s[1]&(1<<fraction-1)
		return s
	},
	wait: func(p *policy, _ time.Duration, now int64, s state) time.Duration {
		whole, part := split(&p.limit, tokenTime(&p.limit)*(holds(&p.limit)-p.n))
		return roundUp(s[0]-now-int64(whole), s[1]-int64(part))
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
func appendTime(to []byte, l *window.Limit, t uint64) []byte {
	whole, part := split(l, t)
	return appendFloat(appendFloat(to, float64(whole)), float64(part))
}

func appendTokens(to []byte, p *policy, _ uint64) []byte {
	l, most := &p.limit, holds(&p.limit)
	token := tokenTime(l)
	switch {
	case p.verb == count || p.verb == set: // a bucket owes at most as much as it holds
		to = appendTime(appendTime(to, l, 2*token*most), l, token*min(p.n, 2*most))
	case p.n > most: // is refused
		to = appendTime(appendFloat(appendFloat(to, -1), 0), l, 0)
	default:
		to = appendTime(appendTime(to, l, token*(most-p.n)), l, token*p.n)
	}
	whole, part := split(l, token)
	to = append(strconv.AppendUint(to, whole, 10), ' ')
	return strconv.AppendUint(to, part, 10)
}

// describeBucket describes a bucket, from which tokens have just been taken or not.
func describeBucket(l *window.Limit, taken bool, now int64, s state) window.Window {
	full, part, epoch, back := max(s[0], now), s[1], s[2], s[3]
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
