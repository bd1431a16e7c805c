package rediswindow

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// verb is what is asked of a limit. See lua/windows.lua.
type verb byte

const (
	take     verb = 'T'
	peek     verb = 'P'
	charge   verb = 'C'
	set      verb = 'S'
	giveBack verb = 'G'
	undo     verb = 'U' // giveBack, as if nothing had been taken
	reset    verb = 'R'
)

// letters are those of the algorithms in the names of fields.
var letters = [...]byte{window.FixedWindow: 'f', window.AlignedWindow: 'a', window.TokenBucket: 'b',
	window.SlidingWindow: 'w', window.SlidingLog: 'l',
	window.CalendarWindow: 'c'}

// op is what is asked of a limit, and the answer.
type op struct {
	verb   verb
	limit  window.Limit
	n      uint64
	of     takeID // what is given back
	key    string // of one of several takes, and its index
	at     int
	name   string // of the hash of the key
	text   string // what the script gets
	answer answer // to the last try
}

// shares reports whether equal ops may be one: of so many takes or hits of one limit, the first ones are granted.
func (o *op) shares() bool {
	return o.verb == take || o.verb == charge && !o.limit.Algorithm.Rolling()
}

// textOf returns the text that the script gets. For a calendar, it depends on the time of the store, if that is known
// from an answer.
func (b *Backend) textOf(o *op) string {
	l := &o.limit
	capacityOrPosition := limits.Capacity(l)
	var space [128]byte
	to := space[:0]
	switch {
	case o.verb == giveBack || o.verb == undo:
		to = strconv.AppendUint(to, o.of.series, 10)
		capacityOrPosition = o.of.position
	case l.Algorithm == window.SlidingLog:
		capacityOrPosition = b.maxLog
	}
	to = append(to, byte(o.verb), letters[l.Algorithm])
	if l.Calendar != 0 {
		to = b.appendBounds(to, l, o.answer.now)
	} else {
		to = strconv.AppendInt(to, l.Scale.Microseconds(), 10)
	}
	for _, n := range [...]uint64{l.Max, capacityOrPosition, min(o.n, MaxCount+1)} { // a larger n is more than any limit
		to = strconv.AppendUint(append(to, ' '), n, 10)
	}
	to = append(to, ' ')
	if l.Calendar != 0 {
		to = appendCalendar(to, l)
	}
	if l.Name != "" {
		to = append(append(to, ':'), l.Name...)
	}
	return string(to)
}

// takeID is the ID of a take as the script knows it: with a rolling algorithm, a position and a series; otherwise, the
// position is the ID of the window, and the series is 1 if the take has opened it.
type takeID struct{ position, series uint64 }

// The ID of a take of a rolling algorithm has both.
const (
	positionBits = 46
	seriesBits   = 17
)

// idOf returns the ID of a position and a series.
func idOf(position, series float64) int64 {
	return (int64(position)&(1<<positionBits-1))<<seriesBits | (int64(series) + 1)
}

// takeOf returns the take of an ID. An ID that is none of a take has a position or a series that is none.
func takeOf(l *window.Limit, id int64) takeID {
	if !l.Algorithm.Rolling() {
		return takeID{position: uint64(id)}
	}
	n := uint64(max(id, 0))
	return takeID{n >> seriesBits, n&(1<<seriesBits-1) - 1}
}

// answer is what the script says of a limit. See lua/windows.lua.
type answer struct {
	now, fit, used, left, wait, position, series float64
	rank                                         int // of the call among equal ones, of which the first fit
}

// outside is the fit of a calendar window that can't open, as the store's time is in another one.
const outside = -3

// answerSize is the size of an answer in a reply.
const answerSize = 7 * 8

// readAnswer reads an answer, which a reply begins with, for a call of a rank.
func readAnswer(reply string, rank int) (a answer) {
	for i, f := range [...]*float64{&a.now, &a.fit, &a.used, &a.left, &a.wait, &a.position, &a.series} {
		*f = float(reply[8*i:])
	}
	a.rank = rank
	return a
}

// unknown has why nothing can be said of a limit, by the fit of its answer.
var unknown = map[float64]error{
	-1:      errors.New("the field of the limit has something that is not a window"),
	-2:      errors.New("WRONGTYPE: the key of Redis has something that is not a hash"),
	outside: fmt.Errorf("%w: the calendar window of the store's time can't be found", window.ErrUnavailable),
}

// window returns the window after the call, and whether the call was made: all of it was counted, given back or
// forgotten. An op of a take of several was made if it fits, also if another one does not.
func (o *op) window() (w window.Window, made bool, err error) {
	if o.answer.fit < 0 {
		return w, false, unknown[o.answer.fit]
	}
	fits := int(o.answer.fit) // equal calls, of this one and others
	made = o.answer.rank < fits
	used := o.answer.used
	left := o.answer.left
	position := o.answer.position
	if made && fits > 1 { // equal calls after it have changed the window
		later := float64(fits-1-o.answer.rank) * float64(o.n)
		used -= later
		if o.limit.Algorithm == window.TokenBucket { // the position is a count, too
			position -= later
			left -= math.Floor(later * float64(o.limit.Scale.Microseconds()) / float64(o.limit.Max))
		}
	}
	if left > 0 {
		w.Count = min(uint64(max(used, 0)), MaxCount)
		w.Left = micros(left)
		w.ExpiresAt = time.UnixMicro(int64(o.answer.now)).Add(w.Left)
	}
	never := o.limit.Algorithm == window.TokenBucket && o.limit.Max == 0 // gets a token
	switch {
	case never && o.n > 0 && (o.verb == charge || o.verb == set):
		w.Refused, w.RetryAfter = true, window.Never
	case made:
	case o.verb == take || o.verb == peek:
		w.Refused, w.RetryAfter = true, window.Never
		if o.n <= limits.Capacity(&o.limit) {
			w.RetryAfter = max(micros(o.answer.wait), time.Microsecond)
		}
	case o.verb == charge && !o.limit.Algorithm.Rolling():
		w.Count = MaxCount
	}
	switch {
	case left <= 0:
	case !o.limit.Algorithm.Rolling():
		w.ID = int64(position)
	case o.verb == take && made && o.n > 0:
		w.ID = idOf(position, o.answer.series)
	}
	return w, made, nil
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n float64) time.Duration {
	return time.Duration(min(n, float64(window.Never/time.Microsecond))) * time.Microsecond
}

// appendBounds appends the bounds of the calendar window of the store's time in microseconds, or if that is 0 of the
// client's, in microseconds: START~END.
func (b *Backend) appendBounds(to []byte, l *window.Limit, now float64) []byte {
	at := time.Now()
	switch {
	case now != 0:
		at = time.UnixMicro(int64(now))
	case b.now != nil:
		at = b.now()
	}
	calendar, _ := limits.CalendarOf(l) // of a zone that is not known, as List may find one, that of UTC
	start, end := calendar.Window(at)
	return fmt.Appendf(to, "%d~%d", start.UnixMicro(), end.UnixMicro())
}

// appendCalendar appends what tells calendars apart: unit, start day and zone.
func appendCalendar(to []byte, l *window.Limit) []byte {
	of := limits.Identity(l)
	return fmt.Appendf(to, "%d,%d,%s", uint8(of.Calendar), of.StartDay, of.Zone)
}

// readCalendar reads what appendCalendar has appended, at the end of a field. It reports whether it may have.
func readCalendar(field string, l *window.Limit) bool {
	parts := strings.SplitN(field[strings.LastIndexByte(field, ' ')+1:], ",", 3)
	if len(parts) < 3 {
		return false
	}
	_, err := fmt.Sscanf(parts[0]+" "+parts[1], "c%d %d", &l.Calendar, &l.StartDay)
	l.Zone = parts[2]
	return err == nil && l.Calendar != 0
}
