package rediswindow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// verb is what a call asks of a limit. See lua/windows.lua.
type verb byte

const (
	take     verb = 't'
	peek     verb = 'p'
	count    verb = 'c'
	set      verb = 's'
	giveBack verb = 'g'
	undo     verb = 'u' // giveBack, as if nothing had been taken
	reset    verb = 'r'
)

// question is what a call asks of a limit, and the answer.
type question struct {
	verb  verb
	key   string
	limit window.Limit
	n     uint64
	id    int64 // of what is given back

	hash string // the name of the hash; if it is empty, write sets it to that of the key
	text string // what the script gets, set by write
	answer
}

// shares reports whether equal questions may be one: of so many takes or hits of one limit, the first ones are granted.
func (q *question) shares() bool {
	return q.verb == take || q.verb == count && !q.limit.Algorithm.Rolling()
}

// write sets the hash and the text of a question. If more is true, the next one belongs to the same take.
func (b *Backend) write(q *question, more bool) {
	holds, times := holds(&q.limit), uint64(1)
	switch {
	case q.verb == giveBack || q.verb == undo: // their places in the text have the ID
		holds, times = splitID(q.limit.Algorithm, q.id)
		if q.opened() { // by the take that is undone
			times = 1
		}
	case q.limit.Algorithm == window.SlidingLog:
		holds = b.maxLog
	}
	var space [256]byte
	to := append(space[:0], q.hash...)
	if q.hash == "" {
		to = b.appendName(to, q.key)
	}
	name := len(to)
	if more {
		to = append(to, '+')
	}
	to = strconv.AppendUint(to, times, 10)
	to = append(to, ' ', byte(q.verb), letters[q.limit.Algorithm])
	if q.limit.Calendar != 0 {
		to = b.appendBounds(to, q)
	} else {
		to = strconv.AppendInt(to, q.limit.Scale.Microseconds(), 10)
	}
	for _, n := range [...]uint64{q.limit.Max, holds, min(q.n, MaxCount+1)} { // a larger n is more than any limit
		to = strconv.AppendUint(append(to, ' '), n, 10)
	}
	to = append(to, ' ')
	if q.limit.Calendar != 0 {
		to = appendCalendar(to, &q.limit)
	}
	if q.limit.Name != "" {
		to = append(append(to, ':'), q.limit.Name...)
	}
	all := string(to)
	q.hash = all[:name]
	q.text = all[name:]
}

// The ID of a take of a rolling algorithm is a place and a series, which the script says.
const (
	placeBits  = 46
	seriesBits = 17
)

// splitID returns the place and the series of an ID.
func splitID(a window.Algorithm, id int64) (place, series uint64) {
	if !a.Rolling() {
		return uint64(id), 0
	}
	return uint64(id) >> seriesBits, uint64(id)&(1<<seriesBits-1) - 1
}

// known reports whether an ID may be one of a take.
func known(a window.Algorithm, id int64) bool {
	return id > 0 && (!a.Rolling() || id&(1<<seriesBits-1) != 0)
}

// answer is what the script says of a limit. See there.
type answer struct{ now, fit, used, left, wait, place, series float64 }

// answerSize is the size of an answer in a reply.
const answerSize = 7 * 8

// readAnswer reads an answer, which a reply begins with.
func readAnswer(reply string) (a answer) {
	for i, f := range [...]*float64{&a.now, &a.fit, &a.used, &a.left, &a.wait, &a.place, &a.series} {
		*f = float(reply[8*i:])
	}
	return a
}

// opened reports whether the call has opened the window.
func (a *answer) opened() bool { return a.series == -2 }

// These are errors of one limit.
var (
	errNoWindow = errors.New("the field of the limit has something that is not a window")
	errNoHash   = errors.New("WRONGTYPE: the key of Redis has something that is not a hash")
	errOutside  = fmt.Errorf("%w: the calendar window of the store's time can't be found", window.ErrUnavailable)
)

// err returns why there is no answer for a limit.
func (a *answer) err() error {
	switch a.fit {
	case -1:
		return errNoWindow
	case -2:
		return errNoHash
	case -3:
		return errOutside
	}
	return nil
}

// window returns the window after a call of rank among equal ones, of which some were made.
func (q *question) window(rank, made int) (w window.Window) {
	r := q.answer
	if later := float64(made - 1 - rank); later > 0 { // those after it have changed the window
		r.used -= later * float64(q.n)
		if q.limit.Algorithm == window.TokenBucket { // the place is a count, too
			r.place -= later * float64(q.n)
			r.left -= math.Floor(later * float64(q.n) * float64(q.limit.Scale.Microseconds()) / float64(q.limit.Max))
		}
	}
	if r.left > 0 {
		w.Count = min(uint64(max(r.used, 0)), MaxCount)
		w.Left = micros(r.left)
		w.ExpiresAt = time.UnixMicro(int64(r.now)).Add(w.Left)
	}
	w.Refused = (q.verb == take || q.verb == peek) && rank >= made
	if w.Refused {
		w.RetryAfter = window.Never
		if q.n <= holds(&q.limit) {
			w.RetryAfter = max(micros(r.wait), time.Microsecond)
		}
	}
	switch {
	case r.left <= 0:
	case r.series < 0:
		w.ID = int64(r.place)
	case q.verb == take && !w.Refused && q.n > 0:
		w.ID = (int64(r.place)&(1<<placeBits-1))<<seriesBits | (int64(r.series) + 1)
	}
	return w
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n float64) time.Duration {
	return time.Duration(min(n, float64(window.Never/time.Microsecond))) * time.Microsecond
}

// ask asks something of one limit. Fit says whether all of it was counted, given back or forgotten.
func (b *Backend) ask(ctx context.Context, q question) (w window.Window, fit bool, err error) {
	asked := [1]question{q}
	rank, err := b.askAll(ctx, asked[:])
	if err == nil {
		err = asked[0].err()
	}
	if err != nil {
		return w, false, err
	}
	made := int(asked[0].fit)
	w = asked[0].window(rank, made)
	if q.verb == count && rank >= made && !q.limit.Algorithm.Rolling() {
		w.Count = MaxCount
	}
	return w, rank < made, nil
}

// askAll asks something of several limits, of which all of a take is made or none, and sets the answers. It returns how
// many equal calls were made before this one. If the calendar window of the client's time can't open, it asks again, by
// the time of the store.
func (b *Backend) askAll(ctx context.Context, all []question) (rank int, err error) {
	c := &batched{Value: call{asked: all}}
	for try := 0; ; try++ {
		for i := range all {
			b.write(&all[i], all[i].verb == take && i < len(all)-1)
		}
		if err := b.run(ctx, c); err != nil {
			return 0, err
		}
		outside := func(q question) bool { return q.err() == errOutside }
		if try == retries || !slices.ContainsFunc(all, outside) {
			return c.Value.rank, nil
		}
	}
}

// appendFloat appends a number in binary form.
func appendFloat(to []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(f))
}

// float reads a number in binary form.
func float(s string) float64 { return math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[:8]))) }
