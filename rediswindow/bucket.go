package rediswindow

import (
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// bucket keeps token buckets. See bucket.lua for what is stored.
//
// A token takes scale/limit to come back, which is rounded up to a multiple of a unit: 2^-32 µs, or, for
// scales over 17 minutes, more, so that a scale is less than 2^62 units.
type bucket struct{}

var bucketScripts = func() *rollingScripts {
	s := newRollingScripts(":bucket", bucketLua, 4)
	s.hit = newScript(bucketHitLua)
	return s
}()

func (bucket) scripts() *rollingScripts { return bucketScripts }

func (bucket) check(string, uint64) error { return nil }

// fraction is how many bits of a number in a script are below a microsecond.
const fraction = 32

// unitsOf returns the binary logarithm of how many units a microsecond has.
func unitsOf(scale time.Duration) int {
	return min(fraction, 62-bits.Len64(uint64(scale.Microseconds())))
}

// tokenTime returns the time of a token in units.
func tokenTime(scale time.Duration, limit uint64) uint64 {
	units := uint64(scale.Microseconds()) << unitsOf(scale)
	return (units-1)/max(limit, 1) + 1
}

// appendTime appends a time in units as two numbers: whole microseconds, and 2^-32 µs.
func appendTime(args []string, scale time.Duration, t uint64) []string {
	whole, part := split(scale, t)
	return append(args, strconv.FormatUint(whole, 10), strconv.FormatUint(part, 10))
}

// split splits a time in units into whole microseconds and 2^-32 µs.
func split(scale time.Duration, t uint64) (whole, part uint64) {
	u := unitsOf(scale)
	return t >> u, t & (1<<u - 1) << (fraction - u)
}

func (bucket) appendTake(args []string, l *window.Limit) []string {
	token := tokenTime(l.Scale, l.Limit)
	whole, part := split(l.Scale, token)
	args = append(args, strconv.FormatInt(l.Scale.Microseconds(), 10), strconv.FormatUint(whole, 10)+" "+strconv.FormatUint(part, 10))
	if l.N > l.Limit {
		return append(args, "-1", "0", "0", "0") // is refused
	}
	args = appendTime(args, l.Scale, token*(l.Limit-l.N))
	return appendTime(args, l.Scale, token*l.N)
}

func (b bucket) taken(l *window.Limit, made bool, now int64, state []int64) window.Window {
	return b.describe(l.Scale, tokenTime(l.Scale, l.Limit), made, now, state)
}

func (bucket) wait(l *window.Limit, now int64, state []int64) time.Duration {
	whole, part := split(l.Scale, tokenTime(l.Scale, l.Limit)*(l.Limit-l.N))
	return roundUp(state[0]-now-int64(whole), state[1]-int64(part))
}

func (b bucket) counted(scale time.Duration, now int64, state []int64) window.Window {
	u := unitsOf(scale)
	token := uint64(state[4])<<u | uint64(state[5])>>(fraction-u)
	if token == 0 { // no take has set the limit
		return rest(uint64(state[1]), now, state[0]+scale.Microseconds())
	}
	return b.describe(scale, token, false, now, state)
}

// describe describes a bucket, from which tokens have just been taken or not.
func (bucket) describe(scale time.Duration, token uint64, taken bool, now int64, state []int64) window.Window {
	full, part, epoch, back := state[0], state[1], state[2], state[3]
	u := unitsOf(scale)
	hi, lo := bits.Mul64(uint64(full-now), 1<<u)
	lo += uint64(part) >> (fraction - u) // no carry: these bits are 0
	count := uint64(MaxCount + 1)
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
	return time.Duration(whole) * time.Microsecond
}
