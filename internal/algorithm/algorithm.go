// Package algorithm has the algorithms of limits as functions on a record, which is what is counted of a key and
// limit. They know neither locks nor clocks nor tables: a store finds the record, reads the time, and calls them.
//
// Each algorithm has a file here, and a line in all. The fixed windows are in this file, as other algorithms use their
// functions. What stores do with any of them is in call.go.
package algorithm

import (
	"math"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Time is when a call is made.
type Time struct {
	Now  int64    // nanoseconds by a clock that is not set, which may wrap around
	Last *Reading // the last one, less than 292 years before or after
}

// Reading is what two clocks have shown at a time.
type Reading struct {
	Now int64     // that of [Time]
	Day time.Time // the time of day
}

// At returns a time of day as the time of both clocks.
func At(day time.Time) Time {
	now := Nanos(day)
	return Time{now, &Reading{now, day}}
}

// Day returns the time of day in a time from now.
func (t Time) Day(in time.Duration) time.Time {
	passed := time.Duration(t.Now - t.Last.Now)
	sum := passed + in
	if (sum >= in) != (passed >= 0) { // it wraps around
		return t.Last.Day.Add(passed).Add(in)
	}
	return t.Last.Day.Add(sum)
}

// Nanos returns a time of day in nanoseconds since 1970, which wrap around.
func Nanos(day time.Time) int64 { return day.Unix()*int64(time.Second) + int64(day.Nanosecond()) }

// Record is what is counted of a key and limit. The zero Record counts nothing. What Count, More, ID and Last mean
// depends on the algorithm, and is said in its file.
type Record struct {
	Scale    time.Duration // the length of the windows
	Max      uint64        // of the last call
	Capacity uint64        // of the last call: what its limit allows at once
	Start    int64
	Count    uint64
	More     uint64
	ID       int64
	Last     int64
	Log      *Log // of a sliding log; otherwise nil, whose methods do nothing
}

// Empty reports whether nothing has been counted since the record was made, or ended. Whatever is counted, also 0, sets
// the ID or Last: no series is 0.
func (r *Record) Empty() bool { return r.ID == 0 && r.Last == 0 }

// End makes the record count nothing.
func (r *Record) End() {
	*r = Record{Scale: r.Scale, Max: r.Max, Capacity: r.Capacity, Log: r.Log}
	r.Log.empty()
}

// passed returns how much time has passed since the start. It is negative if the clock has gone back.
func (r *Record) passed(now int64) time.Duration { return time.Duration(now - r.Start) }

// ahead reports whether the record starts more than a scale after now: the clock has gone back.
func (r *Record) ahead(now int64) bool { return r.passed(now) < -r.Scale && !r.Empty() }

// Algorithm is how a record counts. Its functions get a record that another goroutine does not use.
//
// If the clock goes back by up to a scale, nothing changes. If it goes back by more, a record starts at the present
// time with what it has counted. So a call waits for at most a scale longer, and no more than the limit is granted. But
// what was over is not remembered: a log drops it, also that of a copy of its record.
type Algorithm struct {
	Logs bool // records have a Log

	refills bool // with a Max of 0, nothing that is counted would ever end
	// aligned says that windows start at the same times for all keys, by the time of day: a [limits.Calendar] has them.
	// Otherwise they start at any time, by a clock that is not set.
	aligned bool

	// The others get a record that is not empty, unless they say so.

	// count drops what is over, and returns what counts.
	count func(r *Record, now int64) uint64
	// left returns in which time nothing counts, if nobody calls. It is negative if nothing has counted for so long,
	// and 0 for an empty record.
	left func(r *Record, now int64) time.Duration
	// wait returns in which time at most bound counts, if it is more now.
	wait func(r *Record, now int64, bound uint64) time.Duration
	// add counts n, and sets the ID. The record may be empty, but for its Start. Series is the number of a window that
	// it may open.
	add func(r *Record, now int64, n, series uint64)
	// giveBack gives n back to the window or take with an ID, and reports whether it has.
	giveBack func(r *Record, id int64, n uint64) bool
}

// all are the algorithms.
var all = [...]Algorithm{
	window.FixedWindow:    fixed(false),
	window.AlignedWindow:  fixed(true),
	window.TokenBucket:    bucket,
	window.SlidingWindow:  sliding,
	window.SlidingLog:     slidingLog,
	window.CalendarWindow: fixed(true),
}

// Of returns an algorithm, which [limits.Check] knows.
func Of(a window.Algorithm) *Algorithm { return &all[a] }

// Needs returns for how many more times of logs the store must have room if a record gets another take.
func (a *Algorithm) Needs(r *Record) int {
	if !a.Logs {
		return 0
	}
	return r.Log.needs()
}

// now returns the time by the clock of the algorithm.
func (a *Algorithm) now(t Time) int64 {
	if a.aligned {
		return Nanos(t.Last.Day) + t.Now - t.Last.Now
	}
	return t.Now
}

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

// A fixed window starts with the first hit. An aligned one starts at a multiple of the scale, and one of a calendar as
// that says. A window that is open keeps its end. In its record,
//   - Start is when the window has started, and Scale its length.
//   - Count is what it has counted. One of [window.Unlimited] may be more.
//   - ID is its series.

// fixed returns the algorithm of windows that start with a hit, or are aligned.
func fixed(aligned bool) Algorithm {
	return Algorithm{
		aligned:  aligned,
		count:    countFixed,
		left:     leftFixed,
		wait:     func(r *Record, now int64, _ uint64) time.Duration { return leftFixed(r, now) },
		add:      addFixed,
		giveBack: giveBackFixed,
	}
}

func countFixed(r *Record, now int64) uint64 {
	if r.passed(now) >= r.Scale {
		r.End()
	}
	return r.Count
}

func leftFixed(r *Record, now int64) time.Duration {
	if r.Empty() {
		return 0
	}
	return rest(uint64(r.Scale), r.passed(now))
}

func addFixed(r *Record, _ int64, n, series uint64) {
	if r.ID == 0 {
		r.ID = int64(series)
	}
	r.Count = plus(r.Count, n)
}

func giveBackFixed(r *Record, id int64, n uint64) bool {
	if id != r.ID || r.Count == window.Unlimited {
		return false
	}
	r.Count -= min(n, r.Count)
	return true
}
