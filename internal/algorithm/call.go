package algorithm

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Check returns the error of a call that a store must not make, if a sliding log has a Max of at most maxLog there.
func Check(l *window.Limit, n, maxLog uint64) error {
	if err := limits.Check(l); err != nil {
		return err
	}
	if l.Max > maxLog && Of(l.Algorithm).Logs {
		bound := fmt.Sprintf("at most %d with a %v", maxLog, l.Algorithm)
		return &window.RangeError{Field: "Max", Value: strconv.FormatUint(l.Max, 10), Bound: bound}
	}
	return limits.CheckNumber("N", n)
}

// Traits returns what such a store promises about a limit.
func Traits(l *window.Limit, maxLog uint64) (window.Traits, error) {
	if err := Check(l, 0, maxLog); err != nil || !Of(l.Algorithm).Logs {
		return window.Traits{}, err
	}
	return window.Traits{MaxCount: maxLog}, nil
}

// Rule is how a limit that has been checked counts in a store. It has four words, so that it stays in registers.
type Rule struct {
	*window.Limit
	How    *Algorithm
	MaxLog uint64 // a charge makes a sliding log count no more
	Room   int    // for how many more times of logs the store has room after the calls; negative: not even for a record
}

// RuleOf returns the rule of a limit, in a store that has room for everything.
func RuleOf(l *window.Limit) Rule {
	return Rule{Limit: l, How: Of(l.Algorithm), MaxLog: window.Unlimited, Room: math.MaxInt}
}

// Capacity returns what is allowed at once: what a token bucket holds, otherwise Max.
func (by *Rule) Capacity() uint64 { return limits.Capacity(by.Limit) }

// State is the state of a record after a call.
type State struct {
	Count uint64        // what counts, rounded up
	Left  time.Duration // until nothing does, if nobody calls; 0 if there is no window
	Wait  time.Duration // until the call would be granted; 0: it is; or NoRoom
	ID    int64         // of the window, or, if the algorithm is rolling, of the take
}

// NoRoom as a Wait: the store has no room for what the call would count, and nothing was counted.
const NoRoom time.Duration = -1

// Window returns the window of a record in a state at a time.
func (s State) Window(t Time) (w window.Window) {
	s.Describe(&w, t)
	return w
}

// Describe makes w, which is zero, that window. To copy a Window takes a part of the time of a call in memory.
func (s State) Describe(w *window.Window, t Time) {
	w.Count = s.Count
	w.RetryAfter = s.Wait
	w.Refused = s.Wait > 0
	if s.Left > 0 {
		w.ID = s.ID
		w.Left = s.Left
		w.ExpiresAt = t.Day(s.Left)
	}
}

// Verb is what a call does with a record.
type Verb uint8

// The verbs. With a rolling algorithm, a hit is a take. Otherwise it is a charge: whether it is within the limit, the
// RateLimit says.
const (
	Hit Verb = iota
	Take
	Charge
	Peek
	Set
)

// String returns the name of the call.
func (v Verb) String() string { return [...]string{"hit", "take", "charge", "peek", "set"}[v] }

// Takes reports whether a call counts all of n or nothing.
func (by *Rule) Takes(v Verb) bool { return v == Take || v == Hit && by.Algorithm.Rolling() }

// Call makes a call. Series is a number that no other call for the key has: a window that opens has it.
//
// A take counts n if it fits. A charge counts n, whatever the limit is, but for a token bucket that never gets a token.
// A peek returns what a take would, without n. It drops what is over, and the record gets the numbers of the rule: for
// a record that has to stay as it is, pass a copy.
func (by *Rule) Call(v Verb, r *Record, t Time, n, series uint64) State {
	if v == Set {
		r.End()
	}
	now, count := by.look(r, t)
	by.adopt(r)
	fits := by.fits(count, n)
	adds := fits && n > 0
	switch {
	case v == Peek:
		adds = false
	case !adds && !by.Takes(v):
		if by.How.Logs {
			n = min(n, by.MaxLog-min(by.MaxLog, count))
		}
		adds = (by.Max > 0 || !by.How.refills) && (n > 0 || !by.Algorithm.Rolling())
	}
	needs := by.How.Needs(r)
	switch {
	case !adds:
		return by.state(r, now, count, n)
	case needs > by.Room:
		return State{Count: count, Left: by.How.left(r, now), Wait: NoRoom}
	}
	by.Room -= needs
	if r.Empty() {
		by.start(r, t, now)
	}
	by.How.add(r, now, n, series)
	if fits {
		count += n
	} else { // less than n may count: a charge has bounds
		_, count = by.look(r, t)
	}
	return State{Count: count, Left: by.How.left(r, now), ID: r.ID}
}

// GiveBack gives n back to the window or take with an ID, and reports whether it has.
func (by *Rule) GiveBack(r *Record, t Time, id int64, n uint64) bool {
	by.look(r, t)
	return id != 0 && !r.Empty() && by.How.giveBack(r, id, n)
}

// Left returns in which time nothing counts. It is negative if nothing has counted for so long, and 0 for an empty
// record.
func (by *Rule) Left(r *Record, t Time) time.Duration {
	by.Restart(r, t)
	return by.How.left(r, by.How.now(t))
}

// Restart makes a record start now if the clock has gone back by more than a scale since, and reports whether it
// does. A store must then keep it, although a call may be refused: otherwise it would start anew with each call, and
// never end.
func (by *Rule) Restart(r *Record, t Time) bool {
	now := by.How.now(t)
	if !r.ahead(now) {
		return false
	}
	by.start(r, t, now)
	return true
}

// Listed describes a record of a key and limit, also one that is over: its Left is 0 or less then. What rolling
// algorithms count is 0 then. Max and Burst are those of the last call.
func Listed(key string, digest bool, l window.Limit, r *Record, t Time) window.Listed {
	l.Max = r.Max
	if r.Capacity != r.Max {
		l.Burst = r.Capacity
	}
	by := RuleOf(&l)
	w := window.Window{Left: by.Left(r, t), ID: cmp.Or(r.ID, r.Last)}
	w.ExpiresAt = t.Day(w.Left)
	if w.Left > 0 {
		record := *r
		_, w.Count = by.look(&record, t)
	} else if !by.Algorithm.Rolling() {
		w.Count = r.Count
	}
	return window.Listed{Key: key, Digest: digest, Limit: l, Window: w}
}

// look drops what is over, and returns what counts.
func (by *Rule) look(r *Record, t Time) (now int64, count uint64) {
	now = by.How.now(t)
	if r.Empty() {
		return now, 0
	}
	if r.ahead(now) {
		by.start(r, t, now)
	}
	return now, by.How.count(r, now)
}

// adopt gives the record the numbers of the rule, unless that has no Max: then those before stay for List, and for a
// bucket, which would get no token any more.
func (by *Rule) adopt(r *Record) {
	if by.Max > 0 {
		r.Max = by.Max
		r.Capacity = by.Capacity()
	}
}

// start makes a record start now, or when the window of now has started.
func (by *Rule) start(r *Record, t Time, now int64) {
	r.Start = now
	r.Scale = by.Scale
	if by.How.aligned {
		calendar, _ := limits.CalendarOf(by.Limit)
		day := t.Day(0)
		start, end := calendar.Window(day)
		r.Start -= int64(day.Sub(start))
		r.Scale = end.Sub(start)
	}
	r.Log.noLaterThan(now)
}

// state returns the state of a record by which count counts, when n more are asked for.
func (by *Rule) state(r *Record, now int64, count, n uint64) State {
	s := State{Count: count, Left: by.How.left(r, now), ID: cmp.Or(r.ID, r.Last)}
	switch {
	case by.fits(count, n):
		if n > 0 && by.How.Needs(r) > by.Room {
			s.Wait = NoRoom
		}
	case n > by.Capacity():
		s.Wait = window.Never
	default:
		s.Wait = min(max(by.How.wait(r, now, by.Capacity()-n), 1), window.Never-1)
	}
	return s
}

// fits reports whether n more are within the limit.
func (by *Rule) fits(count, n uint64) bool {
	return n <= by.Capacity() && count <= by.Capacity()-n
}
