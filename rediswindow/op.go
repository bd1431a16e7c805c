package rediswindow

import (
	"strconv"

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

// textOf returns the text that the script gets. It has the time of the store, if that is known from an answer.
func (b *Backend) textOf(o *op) string {
	l := &o.limit
	capacityOrPlace := limits.Capacity(l)
	var space [128]byte
	to := space[:0]
	switch {
	case o.verb == giveBack || o.verb == undo:
		to = strconv.AppendUint(to, o.of.series, 10)
		capacityOrPlace = o.of.place
	case l.Algorithm == window.SlidingLog:
		capacityOrPlace = b.maxLog
	}
	to = append(to, byte(o.verb), letters[l.Algorithm])
	if l.Calendar != 0 {
		to = b.appendBounds(to, l, o.answer.now)
	} else {
		to = strconv.AppendInt(to, l.Scale.Microseconds(), 10)
	}
	for _, n := range [...]uint64{l.Max, capacityOrPlace, min(o.n, MaxCount+1)} { // a larger n is more than any limit
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

// takeID is the ID of a take as the script knows it: with a rolling algorithm, a place and a series; otherwise, the
// place is the ID of the window, and the series is 1 if the take has opened it.
type takeID struct{ place, series uint64 }

// The ID of a take of a rolling algorithm has both.
const (
	placeBits  = 46
	seriesBits = 17
)

// idOf returns the ID of a place and a series.
func idOf(place, series float64) int64 {
	return (int64(place)&(1<<placeBits-1))<<seriesBits | (int64(series) + 1)
}

// takeOf returns the take of an ID. An ID that is none of a take has a place or a series that is none.
func takeOf(l *window.Limit, id int64) takeID {
	if !l.Algorithm.Rolling() {
		return takeID{place: uint64(id)}
	}
	n := uint64(max(id, 0))
	return takeID{n >> seriesBits, n&(1<<seriesBits-1) - 1}
}
