package rediswindow

import (
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// algorithm is how Redis keeps what an algorithm counts. What the script returns of a limit is called its state,
// which is up to four numbers. See lua/windows.lua for what is stored.
type algorithm struct {
	letter byte                    // with which the names of its fields begin
	size   int                     // of a value, without the text of the policy
	most   func(o *options) uint64 // the largest Max, Burst, n and count
	// appendNumbers appends the bound, which is the most unless the policy has another one, and the n of a policy, and
	// its text.
	appendNumbers func(to []byte, p *policy, most uint64) []byte
	read          func(value string) state
	// before returns the state before a number of takes with a policy.
	before func(s state, p *policy, takes int) state
	// describe describes a state, after a take that was made or otherwise.
	describe func(l *window.Limit, made bool, now int64, s state) window.Window
	// wait returns after how long a take fits that does not, and is not more than its limit holds.
	wait func(p *policy, left time.Duration, now int64, s state) time.Duration
}

// state is what a value says, in microseconds and whole numbers. The first is the count, unless the algorithm is rolling.
type state [4]int64

// algorithms are all algorithms.
var algorithms = [...]*algorithm{
	window.FixedWindow:   fixedWindow('f'),
	window.AlignedWindow: fixedWindow('a'),
	window.TokenBucket:   tokenBucket,
	window.SlidingWindow: slidingWindow,
	window.SlidingLog:    slidingLog,
}

// fixedWindow keeps windows that end at a time. Their state is count, start and ID.
func fixedWindow(letter byte) *algorithm {
	return &algorithm{
		letter: letter, size: 3 * 8, most: upToMaxCount, appendNumbers: appendCounts, read: readDoubles, before: countBefore(0),
		describe: func(l *window.Limit, _ bool, now int64, s state) window.Window {
			if s[0] < 0 {
				return window.Window{}
			}
			end := s[1] + l.Scale.Microseconds()
			return window.Window{
				Count: uint64(min(s[0], MaxCount)), ExpiresAt: time.UnixMicro(end), Left: time.Duration(end-now) * time.Microsecond, ID: s[2],
			}
		},
		wait: func(_ *policy, left time.Duration, _ int64, _ state) time.Duration { return left },
	}
}

// slidingWindow keeps sliding windows. Their state is the start of an aligned window, its hits, those of the one
// before, and the epoch.
var slidingWindow = &algorithm{
	letter: 'w', size: 4 * 8, most: upToMaxCount, appendNumbers: appendCounts, read: readDoubles, before: countBefore(1),
	describe: func(l *window.Limit, made bool, now int64, s state) window.Window {
		start, hits, before := s[0], uint64(s[1]), uint64(s[2])
		length := l.Scale.Microseconds()
		end, left := start+length, max(0, min(start+length-now, length))
		weight, more := limits.MulDiv(before, uint64(left), uint64(length))
		if more > 0 {
			weight++
		}
		if hits > 0 {
			end += length
		}
		w := rest(hits+weight, now, end)
		if made {
			w.ID = takeID(start/length, s[3])
		}
		return w
	},
	wait: func(p *policy, _ time.Duration, now int64, s state) time.Duration {
		start, hits, before := s[0], uint64(s[1]), uint64(s[2])
		length := p.limit.Scale.Microseconds()
		room := p.limit.Max - p.n
		if hits > room { // not until the next aligned window, in which these are the hits before
			start, hits, before = start+length, 0, hits
		}
		weight, _ := limits.MulDiv(room-hits, uint64(length), max(before, room-hits, 1)) // how long before its end they fit
		return time.Duration(start+length-int64(weight)-now) * time.Microsecond
	},
}

// slidingLog keeps sliding logs. Their state is the number of hits, the time of the last, that of the hit that has to
// be over before the take fits, and the epoch.
var slidingLog = &algorithm{
	letter: 'l', size: 4 * 8, most: func(o *options) uint64 { return o.maxLog },
	appendNumbers: appendCounts, read: readDoubles, before: countBefore(0),
	describe: func(l *window.Limit, made bool, now int64, s state) window.Window {
		w := rest(uint64(s[0]), now, s[1]+l.Scale.Microseconds())
		if made {
			w.ID = takeID(s[1], s[3])
		}
		return w
	},
	wait: func(p *policy, _ time.Duration, now int64, s state) time.Duration {
		return time.Duration(s[2]-now)*time.Microsecond + p.limit.Scale
	},
}

// upToMaxCount is the most of algorithms without a lower bound.
func upToMaxCount(*options) uint64 { return MaxCount }

// check returns what the backend promises about a limit, or why it can't keep it.
func (b *Backend) check(l *window.Limit) (t window.Traits, err error) {
	if err := limits.Check(*l); err != nil {
		return t, err
	}
	if err := checkScale(l.Scale); err != nil {
		return t, err
	}
	most := algorithms[l.Algorithm].most(&b.options)
	if err := checkNumber("Max", l.Max, most); err != nil {
		return t, err
	}
	if err := checkNumber("Burst", l.Burst, most); err != nil {
		return t, err
	}
	if l.Burst > 0 && fillTime(l) > maxTime {
		return t, &window.RangeError{Field: "Burst", Value: strconv.FormatUint(l.Burst, 10), Bound: "so large that the bucket fills in 142 years"}
	}
	return window.Traits{MaxCount: most}, nil
}

// checkNumber returns an error if n is more than the most.
func checkNumber(field string, n, most uint64) error {
	if n <= most {
		return nil
	}
	bound := fmt.Sprintf("at most %d", most)
	if most == MaxCount {
		bound = "at most 2^53-1"
	}
	return &window.RangeError{Field: field, Value: strconv.FormatUint(n, 10), Bound: bound}
}

// checkScale returns an error if scripts can't compute with a scale.
func checkScale(scale time.Duration) error {
	if err := limits.CheckScale(scale); err != nil {
		return err
	}
	if scale%time.Microsecond != 0 {
		return fmt.Errorf("%w: %v is not a whole number of microseconds", window.ErrScale, scale)
	}
	if scale > MaxScale {
		return fmt.Errorf("%w: %v is more than %v", window.ErrScale, scale, MaxScale)
	}
	return nil
}

// appendField appends the name of the field of a limit: fields differ if names, scales or algorithms do.
func appendField(to []byte, l *window.Limit) []byte {
	to = strconv.AppendInt(append(to, algorithms[l.Algorithm].letter), l.Scale.Microseconds(), 10)
	if l.Name != "" {
		to = append(append(to, ':'), l.Name...)
	}
	return to
}

// holds returns what a limit allows at once. A Max of 0 allows nothing, whatever the Burst is.
func holds(l *window.Limit) uint64 {
	if l.Max == 0 {
		return 0
	}
	return limits.Capacity(*l)
}

// appendCounts appends counts.
func appendCounts(to []byte, p *policy, most uint64) []byte {
	to = appendFloat(appendFloat(to, float64(most)), 0)
	return appendFloat(appendFloat(to, float64(min(p.n, MaxCount+1))), 0) // more than Max is refused in any case
}

// readDoubles reads a state that is stored as doubles.
func readDoubles(value string) (s state) {
	for i := range len(value) / 8 {
		s[i] = int64(float(value[8*i:]))
	}
	return s
}

// countBefore returns what lowers a number of a state.
func countBefore(i int) func(s state, p *policy, takes int) state {
	return func(s state, p *policy, takes int) state {
		s[i] -= int64(p.n) * int64(takes)
		return s
	}
}

// rest describes a count of which nothing is left after a time in microseconds.
func rest(count uint64, now, end int64) window.Window {
	if count == 0 {
		return window.Window{}
	}
	return window.Window{Count: min(count, MaxCount), ExpiresAt: time.UnixMicro(end), Left: micros(end - now)}
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n int64) time.Duration {
	return time.Duration(min(n, int64(window.Never/time.Microsecond))) * time.Microsecond
}

// window returns the window of the call that has a rank among equal ones, of which some fit, and all were granted
// that fit all limits of the call.
func (p *policy) window(now int64, value string, fits, all, rank int) window.Window {
	a, l := algorithms[p.limit.Algorithm], &p.limit
	s := a.read(value)
	switch {
	case p.verb == take && rank < all:
		if later := all - 1 - rank; later > 0 {
			s = a.before(s, p, later)
		}
		return a.describe(l, p.n > 0, now, s)
	case p.verb == take && fits > all, p.verb == peek && fits > 0, p.verb == set:
		return a.describe(l, false, now, s)
	case p.verb == count && l.Algorithm.Rolling():
		return a.describe(l, false, now, s)
	case p.verb == count && rank < fits:
		return a.describe(l, false, now, a.before(s, p, fits-1-rank))
	case p.verb == count:
		s[0] = MaxCount
		return a.describe(l, false, now, s)
	}
	w := a.describe(l, false, now, s)
	w.Refused, w.RetryAfter = true, window.Never
	if p.n <= holds(l) {
		w.RetryAfter = max(a.wait(p, w.Left, now, s), time.Microsecond)
	}
	return w
}

// The ID of a take of a rolling algorithm has the lower bits of when it was made and of an epoch. The epoch changes
// when all hits of a limit are forgotten. When is a time in microseconds, or a number of windows.
const (
	whenBits  = 46
	epochBits = 17
)

// takeID returns the ID of a take, which is not 0.
func takeID(when, epoch int64) int64 { return (when&(1<<whenBits-1))<<epochBits | (epoch + 1) }

// whenOf returns what takeID was given: the epoch is negative if it was not given anything.
func whenOf(id int64) (when, epoch int64) {
	if id <= 0 {
		return 0, -1
	}
	return id >> epochBits, id&(1<<epochBits-1) - 1
}
