// Package algorithm has the algorithms of limits as functions on a record, which is what is counted of a key and
// limit. They know neither locks nor clocks nor tables: a store finds the record, reads the time, and calls them.
//
// An algorithm is a file here, and a line in all.
package algorithm

import (
	"cmp"
	"math"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Time is when a call is made.
type Time struct {
	Now   int64         // nanoseconds by a clock that is not set, which may wrap around
	Read  time.Time     // a time of day
	Since time.Duration // from Read to the call
}

// Day returns the time of day.
func (t *Time) Day() time.Time { return t.Read.Add(t.Since) }

// After returns the time of day that is d later.
func (t *Time) After(d time.Duration) time.Time {
	if d > math.MaxInt64/2 { // the sum might be too large
		return t.Day().Add(d)
	}
	return t.Read.Add(t.Since + d)
}

// Rule is the numbers of a limit.
type Rule struct {
	Scale    time.Duration // at most [window.MaxScale]
	Max      uint64
	Holds    uint64          // what is allowed at once: what a token bucket holds, otherwise Max
	Calendar limits.Calendar // in place of a Scale
}

// RuleOf returns the numbers of a limit.
func RuleOf(l *window.Limit) Rule {
	by := Rule{Scale: l.Scale, Max: l.Max, Holds: limits.Capacity(l)}
	if l.Calendar != 0 {
		by.Calendar, _ = limits.CalendarOf(l)
	}
	return by
}

// Record is what is counted of a key and limit. The zero Record counts nothing. What Count, More, ID and Last mean
// depends on the algorithm, and is said in its file.
type Record struct {
	Scale time.Duration // the length of the windows
	Max   uint64        // of the last call
	Holds uint64        // of the last call
	Start int64
	Count uint64
	More  uint64
	ID    int64
	Last  int64
	Log   *Log
}

// Rule returns the numbers of the last call, without a Calendar.
func (r *Record) Rule() Rule { return Rule{Scale: r.Scale, Max: r.Max, Holds: r.Holds} }

// Empty reports whether nothing has been counted since the record was made, or ended.
func (r *Record) Empty() bool { return r.ID == 0 && r.Last == 0 }

// End makes the record count nothing.
func (r *Record) End() {
	*r = Record{Scale: r.Scale, Max: r.Max, Holds: r.Holds, Log: r.Log}
	r.Log.empty()
}

// passed returns how much time has passed since the start. It is negative if the clock has gone back.
func (r *Record) passed(now int64) time.Duration { return time.Duration(now - r.Start) }

// State is the state of a record after a call.
type State struct {
	Count uint64        // what counts, rounded up
	Left  time.Duration // until nothing does, if nobody calls; 0 if there is no window
	Wait  time.Duration // until the call would be granted, if it is not
	ID    int64         // of the window, or, if the algorithm is rolling, of the take
}

// Describe makes w describe a record in a state at a time.
func (s State) Describe(t *Time, w *window.Window) {
	*w = window.Window{Count: s.Count, RetryAfter: s.Wait, Refused: s.Wait > 0}
	if s.Left > 0 {
		w.ID = s.ID
		w.Left = s.Left
		w.ExpiresAt = t.After(s.Left)
	}
}

// Algorithm is how a record counts. Its functions get a record that another goroutine does not use.
//
// If the clock goes back by up to a scale, nothing changes. If it goes back by more, a record starts at the present
// time with what it has counted. So a call waits for at most a scale longer, and no more than the limit is granted.
type Algorithm struct {
	Rolling bool // see [window.Algorithm.Rolling]
	Logs    bool // records have a Log

	refills bool // with a Max of 0, nothing that is counted would ever end

	// window returns the window that starts at a time of day. It is nil if windows start at any time, and their clock
	// is one that is not set.
	window func(by Rule, day time.Time) (start, end time.Time)

	// The others get a record that is not empty, unless they say so.

	// count drops what is over, and returns what counts.
	count func(r *Record, now int64) uint64
	// left returns in which time nothing counts, if nobody calls. It is negative if nothing has counted for so long.
	left func(r *Record, now int64) time.Duration
	// wait returns in which time at most room counts, if it is more now.
	wait func(r *Record, now int64, room uint64) time.Duration
	// add counts n, and sets the ID. The record may be empty, but for its Start. Series is the number of a window that
	// it may open.
	add func(r *Record, now int64, n, series uint64)
	// giveBack gives n back to the window or take with an ID, and reports whether it has.
	giveBack func(r *Record, id int64, n uint64) bool
}

// all are the algorithms.
var all = [...]Algorithm{
	window.FixedWindow:    fixed(nil),
	window.AlignedWindow:  fixed(alignedWindow),
	window.TokenBucket:    bucket,
	window.SlidingWindow:  sliding,
	window.SlidingLog:     slidingLog,
	window.CalendarWindow: fixed(calendarWindow),
}

// Of returns an algorithm, which [limits.Check] knows.
func Of(a window.Algorithm) *Algorithm { return &all[a] }

// Take counts n if it fits. Series is a number that no other call for the key has: a window that opens has it.
func (a *Algorithm) Take(r *Record, by *Rule, t *Time, n, series uint64) State {
	now, count := a.look(r, by, t)
	if n == 0 || !fits(by, count, n) {
		return a.state(r, by, now, count, n)
	}
	if r.Empty() {
		a.start(r, by, t, now)
	}
	a.add(r, now, n, series)
	return State{Count: count + n, Left: a.left(r, now), ID: r.ID}
}

// Peek returns what Take would, without n. It drops what is over.
func (a *Algorithm) Peek(r *Record, by *Rule, t *Time, n uint64) State {
	now, count := a.look(r, by, t)
	return a.state(r, by, now, count, n)
}

// Charge counts n, whatever the limit is. A token bucket that never gets a token counts nothing.
func (a *Algorithm) Charge(r *Record, by *Rule, t *Time, n, series uint64) State {
	now, count := a.look(r, by, t)
	if a.refills && by.Max == 0 || a.Rolling && n == 0 {
		return a.state(r, by, now, count, n)
	}
	if r.Empty() {
		a.start(r, by, t, now)
	}
	a.add(r, now, n, series)
	_, count = a.look(r, by, t)
	return State{Count: count, Left: a.leftOf(r, now), ID: r.ID}
}

// GiveBack gives n back to the window or take with an ID, and reports whether it has.
func (a *Algorithm) GiveBack(r *Record, by *Rule, t *Time, id int64, n uint64) bool {
	numbers := *by
	numbers.Max = r.Max
	numbers.Holds = r.Holds
	a.look(r, &numbers, t)
	return id != 0 && !r.Empty() && a.giveBack(r, id, n)
}

// Left returns in which time nothing counts. It is negative if nothing has counted for so long, and 0 for an empty
// record.
func (a *Algorithm) Left(r *Record, by *Rule, t *Time) time.Duration {
	now := a.now(t)
	a.restart(r, by, t, now)
	return a.leftOf(r, now)
}

func (a *Algorithm) leftOf(r *Record, now int64) time.Duration {
	if r.Empty() {
		return 0
	}
	return a.left(r, now)
}

// Restart makes a record start now if the clock has gone back by more than a scale since, and reports whether it
// does. A store must then keep it, although a call may be refused: otherwise it would start anew with each call, and
// never end.
func (a *Algorithm) Restart(r *Record, by *Rule, t *Time) bool { return a.restart(r, by, t, a.now(t)) }

// now returns the time by the clock of the algorithm.
func (a *Algorithm) now(t *Time) int64 {
	if a.window == nil {
		return t.Now
	}
	return Nanos(t.Day())
}

// Nanos returns a time of day in nanoseconds since 1970, which wrap around.
func Nanos(day time.Time) int64 { return day.Unix()*int64(time.Second) + int64(day.Nanosecond()) }

func (a *Algorithm) restart(r *Record, by *Rule, t *Time, now int64) bool {
	if r.passed(now) >= -r.Scale || r.Empty() {
		return false
	}
	a.start(r, by, t, now)
	return true
}

// start makes a record start now, or when the window of now has started.
func (a *Algorithm) start(r *Record, by *Rule, t *Time, now int64) {
	r.Start = now
	r.Scale = by.Scale
	if a.window != nil {
		day := t.Day()
		start, end := a.window(*by, day)
		r.Start -= int64(day.Sub(start))
		r.Scale = end.Sub(start)
	}
	r.Log.noLaterThan(now)
}

// look drops what is over, and returns what counts. The record gets the numbers of the rule, unless it is a bucket that
// would get no token any more.
func (a *Algorithm) look(r *Record, by *Rule, t *Time) (now int64, count uint64) {
	now = a.now(t)
	if !r.Empty() {
		a.restart(r, by, t, now)
		count = a.count(r, now)
	}
	if by.Max > 0 || !a.refills {
		r.Max = by.Max
		r.Holds = by.Holds
	}
	return now, count
}

// state returns the state of a record by which count counts, when n more are asked for.
func (a *Algorithm) state(r *Record, by *Rule, now int64, count, n uint64) State {
	s := State{Count: count, Left: a.leftOf(r, now), ID: cmp.Or(r.ID, r.Last)}
	switch {
	case fits(by, count, n):
	case n > by.Holds || a.refills && by.Max == 0:
		s.Wait = window.Never
	default:
		s.Wait = min(max(a.wait(r, now, by.Holds-n), 1), window.Never-1)
	}
	return s
}

// fits reports whether n more are within the limit.
func fits(by *Rule, count, n uint64) bool {
	return n <= by.Holds && count <= by.Holds-n && (by.Max > 0 || n == 0)
}

// leftOfScale returns in which time a scale has passed.
func leftOfScale(r *Record, now int64) time.Duration { return rest(uint64(r.Scale), r.passed(now)) }

// rest returns some nanoseconds, less what has passed, or the longest time.
func rest(nanos uint64, passed time.Duration) time.Duration {
	left := nanos - uint64(passed) // passed may be negative
	if passed > 0 && left > math.MaxInt64 {
		return time.Duration(left) // more has passed
	}
	return time.Duration(min(left, math.MaxInt64))
}

// spread returns a number to which those of other series are not near.
func spread(series uint64) int64 { return int64(series * 0x9e3779b97f4a7c15) }

// plus returns the sum of counts, which stays at the largest count.
func plus(count, n uint64) uint64 { return min(count+n, window.Unlimited) }

// share returns x*y/z, rounded down. The quotient must be less than 2^64.
func share(x, y, z uint64) uint64 {
	q, _ := limits.MulDiv(x, y, z)
	return q
}
