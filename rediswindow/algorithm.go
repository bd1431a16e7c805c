package rediswindow

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// algorithm is how Redis keeps what an algorithm counts. What its scripts return of a limit is called its
// state, which is four numbers. A new algorithm is one value, one file in the folder lua, and a line in
// algorithms.
type algorithm struct {
	letter byte   // with which the names of its fields begin
	source string // of its functions, see lua/common.lua
	// fast is a faster take of one limit, or nil. It returns nothing but 2 if only take.lua can do it.
	fast *script
	// most returns the largest Max, Burst, n and count.
	most func(o *options) uint64
	// appendArgs appends the arguments of a take but for the field, or those of a count, which has a bound.
	appendArgs func(args []string, a *call) []string
	// describe describes a state, after a take that was made or otherwise.
	describe func(l *window.Limit, made bool, now int64, state []int64) window.Window
	// wait returns after how long a take fits that does not, and is not more than its limit holds.
	wait func(t *window.Take, w *window.Window, now int64, state []int64) time.Duration
}

// call is a take or a count. A count has the bound most.
type call struct {
	*window.Take
	id    string // of a window that opens
	count bool
	most  uint64
}

// stateSize is the number of numbers of a state.
const stateSize = 4

// algorithms are all algorithms.
var algorithms = [...]*algorithm{
	window.FixedWindow:   fixedWindow('f'),
	window.AlignedWindow: fixedWindow('a'),
	window.TokenBucket:   tokenBucket,
	window.SlidingWindow: slidingWindow,
	window.SlidingLog:    slidingLog,
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

// fieldOf returns the name of the field of a limit: fields differ if names, scales or algorithms do.
func fieldOf(l *window.Limit) string {
	var s strings.Builder
	s.WriteByte(algorithms[l.Algorithm].letter)
	s.WriteString(strconv.FormatInt(l.Scale.Microseconds(), 10))
	if l.Name != "" {
		s.WriteByte(':')
		s.WriteString(l.Name)
	}
	return s.String()
}

// holds returns what a limit allows at once. A Max of 0 allows nothing, whatever the Burst is.
func holds(l *window.Limit) uint64 {
	if l.Max == 0 {
		return 0
	}
	return limits.Holds(*l)
}

// appendCounts appends Max, or the bound of a count, and n.
func appendCounts(args []string, c *call) []string {
	most := c.Limit.Max
	if c.count {
		most = c.most
	}
	return append(args, strconv.FormatUint(most, 10), strconv.FormatUint(min(c.N, MaxCount+1), 10)) // more than Max is refused in any case
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

// decided returns the window of a take, and whether it was refused.
func decided(t *window.Take, fits, made bool, now int64, state []int64) window.Window {
	a := algorithms[t.Limit.Algorithm]
	w := a.describe(&t.Limit, made, now, state)
	if fits {
		return w
	}
	w.Refused, w.RetryAfter = true, window.Never
	if t.N <= holds(&t.Limit) {
		w.RetryAfter = max(a.wait(t, &w, now, state), time.Microsecond)
	}
	return w
}

// The ID of a take of a rolling algorithm has the lower bits of a place and an epoch. The epoch changes
// when all hits of a limit are forgotten. The place is a time in microseconds, or a number of windows.
const (
	placeBits = 46
	epochBits = 17
)

// takeID returns the ID of a take, which is not 0.
func takeID(place, epoch int64) int64 { return (place&(1<<placeBits-1))<<epochBits | (epoch + 1) }

// placeOf returns what takeID was given: the epoch is negative if it was not given anything.
func placeOf(id int64) (place, epoch int64) {
	if id <= 0 {
		return 0, -1
	}
	return id >> epochBits, id&(1<<epochBits-1) - 1
}

// mulDiv returns a·b/c, rounded down, and whether there was a rest. The result must fit.
func mulDiv(a, b, c uint64) (q uint64, rest bool) {
	hi, lo := bits.Mul64(a, b)
	q, r := bits.Div64(hi, lo, c)
	return q, r > 0
}
