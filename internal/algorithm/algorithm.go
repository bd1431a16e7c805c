// Package algorithm has the algorithms of limits as functions on a record, which is what is counted of a key and
// limit. They know neither locks nor clocks nor tables: a store finds the record, reads the time, and calls them.
//
// An algorithm is a file here, and a line in all.
package algorithm

import (
	"cmp"
	"math"
	"math/bits"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Time is when a call is made.
type Time struct {
	Now  int64 // in nanoseconds by the clock of the algorithm, see [Algorithm.Wall]; it may wrap around
	Sec  int64 // the time of day, in seconds since 1970
	Nano int64 // and nanoseconds

	Calendar *limits.Calendar // of the limit; nil: it has none, or nothing is asked for
}

// Rule is the numbers of a limit.
type Rule struct {
	Scale time.Duration // at most [window.MaxScale]
	Max   uint64
	Holds uint64 // what is allowed at once: what a token bucket holds, otherwise Max
}

// RuleOf returns the numbers of a limit.
func RuleOf(l *window.Limit) Rule {
	return Rule{Scale: l.Scale, Max: l.Max, Holds: limits.Capacity(l)}
}

// Record is what is counted of a key and limit. The zero Record counts nothing. What its fields mean depends on the
// algorithm, and is said in its file. The Scale never changes.
type Record struct {
	Rule  // of the last call
	Start int64
	Count uint64
	More  uint64
	ID    int64
	Last  int64
	Log   *Log
}

// Empty reports whether nothing has been counted since the record was made, or ended.
func (r *Record) Empty() bool { return r.ID == 0 && r.Last == 0 }

// End makes the record count nothing.
func (r *Record) End() {
	*r = Record{Rule: r.Rule, Log: r.Log}
	if r.Log != nil {
		r.Log.empty()
	}
}

// State is the state of a record after a call.
type State struct {
	Count uint64        // what counts, rounded up
	Left  time.Duration // until nothing does, if nobody calls; 0 if there is no window
	Wait  time.Duration // until the call would be granted, if it is not
	ID    int64         // of the window, or, if the algorithm is rolling, of the take
}

// Algorithm is how a record counts. Its functions get a record that another goroutine does not use.
//
// If the clock goes back by up to a scale, nothing changes. If it goes back by more, a record starts at the present
// time with what it has counted. So a call waits for at most a scale longer, and no more than the limit is granted.
type Algorithm struct {
	Wall    bool // Time.Now is that of the wall clock, and not of the monotonic one
	Rolling bool // see [window.Algorithm.Rolling]
	Logs    bool // records have a Log

	refills bool // with a Max of 0, nothing that is counted would ever end

	// look drops what is over, sets the rule, and returns what counts.
	look func(r *Record, by Rule, t Time) (count uint64)
	// left returns in which time nothing counts, if nobody calls, of a record that is not empty. It is negative if
	// nothing has counted for so long.
	left func(r *Record, t Time) time.Duration
	// wait returns in which time at most room counts, if it is more now.
	wait func(r *Record, t Time, room uint64) time.Duration
	// add counts n, and sets the ID. Series is the number of a window that it may open.
	add func(r *Record, t Time, n, series uint64)
	// charge is add, whatever the limit is. nil: add
	charge func(r *Record, t Time, n, series uint64)
	// giveBack gives n back to the window or take with an ID, and reports whether it has.
	giveBack func(r *Record, t Time, id int64, n uint64) bool
}

// all are the algorithms.
var all = [...]Algorithm{
	window.FixedWindow:   fixed,
	window.AlignedWindow: aligned,
	window.TokenBucket:   bucket,
	window.SlidingWindow: sliding,
	window.SlidingLog:    slidingLog,

	window.CalendarWindow: calendar,
}

// Of returns an algorithm, which [limits.Check] knows.
func Of(a window.Algorithm) *Algorithm { return &all[a] }

// Take counts n if it fits. Series is a number that no other call for the key has: a window that opens has it.
func (a *Algorithm) Take(r *Record, by Rule, t Time, n, series uint64) State {
	count := a.look(r, by, t)
	if n == 0 || !fits(by, count, n) {
		return a.state(r, by, t, count, n)
	}
	a.add(r, t, n, series)
	return State{Count: count + n, Left: a.left(r, t), ID: r.ID}
}

// Peek returns what Take would, without n. It drops what is over.
func (a *Algorithm) Peek(r *Record, by Rule, t Time, n uint64) State {
	return a.state(r, by, t, a.look(r, by, t), n)
}

// Charge counts n, whatever the limit is. A token bucket that never gets a token counts nothing.
func (a *Algorithm) Charge(r *Record, by Rule, t Time, n, series uint64) State {
	count := a.look(r, by, t)
	switch {
	case a.refills && by.Max == 0:
		s := a.state(r, by, t, count, 0)
		s.Wait = window.Never
		return s
	case a.Rolling && n == 0:
	case a.charge != nil:
		a.charge(r, t, n, series)
	default:
		a.add(r, t, n, series)
	}
	return State{Count: a.look(r, by, t), Left: a.Left(r, t), ID: r.ID}
}

// GiveBack gives n back to the window or take with an ID, and reports whether it has.
func (a *Algorithm) GiveBack(r *Record, t Time, id int64, n uint64) bool {
	a.look(r, r.Rule, t)
	return id != 0 && a.giveBack(r, t, id, n)
}

// Copy returns a copy of a record, in which nothing can be given back that was taken before. Series is as in Take.
func (a *Algorithm) Copy(r *Record, series uint64) Record {
	if r.Empty() {
		return Record{Rule: r.Rule}
	}
	c := *r
	c.Log = r.Log.Clone()
	switch {
	case a.Logs:
		c.Last = logSeries(series)
		c.ID = c.Last | int64(uint32(r.ID))
		return c
	case c.ID != 0:
		c.ID = spread(series)
	}
	if c.Last != 0 {
		c.Last = spread(series)
	}
	return c
}

// Left returns in which time nothing counts. It is negative if nothing has counted for so long, and 0 for an empty
// record.
func (a *Algorithm) Left(r *Record, t Time) time.Duration {
	if r.Empty() {
		return 0
	}
	return a.left(r, t)
}

// state returns the state of a record by which count counts, when n more are asked for.
func (a *Algorithm) state(r *Record, by Rule, t Time, count, n uint64) State {
	s := State{Count: count, Left: a.Left(r, t), ID: cmp.Or(r.ID, r.Last)}
	switch {
	case fits(by, count, n):
	case n > by.Holds || a.refills && by.Max == 0:
		s.Wait = window.Never
	default:
		s.Wait = min(max(a.wait(r, t, by.Holds-n), 1), window.Never-1)
	}
	return s
}

// fits reports whether n more are within the limit.
func fits(by Rule, count, n uint64) bool {
	return n <= by.Holds && count <= by.Holds-n && (by.Max > 0 || n == 0)
}

// since returns how much time has passed since a record's start. It is negative if the clock has gone back by up to a
// scale. If that is more, the record starts now.
func since(r *Record, t Time) time.Duration {
	passed := time.Duration(t.Now - r.Start)
	if passed < -r.Scale {
		r.Start = t.Now
		return 0
	}
	return passed
}

// sinceAligned is since for windows that start at multiples of the scale.
func sinceAligned(r *Record, t Time) time.Duration {
	passed := time.Duration(t.Now - r.Start)
	if passed < -r.Scale {
		r.Start = alignedStart(t, r.Scale)
		return time.Duration(t.Now - r.Start)
	}
	return passed
}

// alignedStart returns the last multiple of a scale since 1970.
func alignedStart(t Time, scale time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(max(t.Sec, -t.Sec)), uint64(time.Second))
	rest := int64(bits.Rem64(hi, lo, uint64(scale)))
	if t.Sec < 0 {
		rest = int64(scale) - rest
	}
	return t.Now - (rest+t.Nano)%int64(scale)
}

// rest returns some scales, less what has passed, or the longest time.
func rest(scales uint64, scale, passed time.Duration) time.Duration {
	left := scales*uint64(scale) - uint64(passed) // passed may be negative
	if passed > 0 && left > math.MaxInt64 {
		return time.Duration(left) // more has passed
	}
	return time.Duration(min(left, math.MaxInt64))
}

// spread returns a number to which those of other series are not near.
func spread(series uint64) int64 { return int64(series * 0x9e3779b97f4a7c15) }

// minus returns count less n, of which there may be more.
func minus(count, n uint64) uint64 { return count - min(count, n) }

// plus returns the sum of counts, which stays at the largest count.
func plus(count, n uint64) uint64 { return min(count+n, window.Unlimited) }

// share returns x*y/z, rounded down. The quotient must be less than 2^64.
func share(x, y, z uint64) uint64 {
	q, _ := limits.MulDiv(x, y, z)
	return q
}
