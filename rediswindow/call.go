package rediswindow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/batch"
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

// part is what a call asks of a limit, as the script gets it: the name of a hash, and a text.
type part struct{ hash, text string }

// call is a call of a method: one part, or several, all or none.
type call struct {
	parts []part
	equal bool // it may be one entry with calls that ask the same

	now    int64 // of the server
	opens  int64 // the ID of the first window that the request opens
	result string
	err    error
}

type (
	batched = batch.Call[call]
	batcher = batch.Batcher[part, call]
)

// ask is what is asked of a limit, and the answer.
type ask struct {
	verb  verb
	hash  string // its name
	limit *window.Limit
	n     uint64
	id    int64 // of what is given back

	answer
}

// text returns what the script gets. Now is the time of the store, for calendar windows; zero: it is not known. If more
// is true, the next one belongs to the same call.
func (b *Backend) text(a *ask, now time.Time, more bool) string {
	holds, times := holds(a.limit), uint64(1)
	switch {
	case a.verb == giveBack || a.verb == undo:
		holds, times = splitID(a.limit.Algorithm, a.id)
		if a.opened {
			times = 1
		}
	case a.limit.Algorithm == window.SlidingLog:
		holds = b.maxLog
	}
	var space [256]byte
	to := strconv.AppendUint(space[:0], times, 10)
	to = append(to, ' ', byte(a.verb), letters[a.limit.Algorithm])
	if a.limit.Calendar != 0 {
		to = b.appendBounds(to, a.limit, now)
	} else {
		to = strconv.AppendInt(to, a.limit.Scale.Microseconds(), 10)
	}
	for _, n := range [...]uint64{a.limit.Max, holds, min(a.n, MaxCount+1)} { // a larger n is more than any limit
		to = strconv.AppendUint(append(to, ' '), n, 10)
	}
	if more {
		to = append(to, '+')
	} else {
		to = append(to, ' ')
	}
	if a.limit.Calendar != 0 {
		to = appendCalendar(to, a.limit)
	}
	if a.limit.Name != "" {
		to = append(append(to, ':'), a.limit.Name...)
	}
	return string(to)
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

// answer is what the script says of a limit.
type answer struct {
	fit, count, left, retry, place, series, step float64

	now    int64 // of the server
	opened bool  // the call has opened the window, unless it was refused
}

// answerSize is the size of an answer in a reply.
const answerSize = 7 * 8

// answer returns the answer for a part.
func (c *call) answer(i int) (a answer) {
	r := c.result[i*answerSize:]
	for at, f := range [...]*float64{&a.fit, &a.count, &a.left, &a.retry, &a.place, &a.series, &a.step} {
		*f = float(r[8*at:])
	}
	a.now = c.now
	opened := int64(a.place) - c.opens
	a.opened = a.series < 0 && opened >= 0 && opened < int64(maxLimits+len(c.parts))
	return a
}

// errNoWindow says that something else than a window is stored.
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
func (a ask) window(rank, made int) (w window.Window) {
	if later := made - 1 - rank; later > 0 { // those after it have changed the window
		a.count -= float64(later) * float64(a.n)
		a.left -= math.Floor(float64(later) * a.step)
		if a.step > 0 { // the place is a count, too
			a.place -= float64(later) * float64(a.n)
		}
	}
	if a.left > 0 {
		left := int64(a.left)
		w.Count = min(uint64(max(a.count, 0)), MaxCount)
		w.Left = micros(left)
		w.ExpiresAt = time.UnixMicro(a.now).Add(w.Left)
	}
	w.Refused = (a.verb == take || a.verb == peek) && rank >= made
	if w.Refused {
		w.RetryAfter = window.Never
		if a.n <= holds(a.limit) {
			w.RetryAfter = max(micros(int64(min(a.retry, MaxCount))), time.Microsecond)
		}
	}
	switch {
	case a.left <= 0:
	case a.series < 0:
		w.ID = int64(a.place)
	case a.verb == take && !w.Refused && a.n > 0:
		w.ID = (int64(a.place)&(1<<placeBits-1))<<seriesBits | (int64(a.series) + 1)
	}
	return w
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n int64) time.Duration {
	return time.Duration(min(n, int64(window.Never/time.Microsecond))) * time.Microsecond
}

// one makes a call of one part. Fit says whether all of it was counted, given back or forgotten.
func (b *Backend) one(ctx context.Context, k ask) (w window.Window, fit bool, err error) {
	asks := [1]ask{k}
	rank, err := b.make(ctx, asks[:])
	if err == nil {
		err = asks[0].err()
	}
	if err != nil {
		return w, false, err
	}
	made := int(asks[0].fit)
	w = asks[0].window(rank, made)
	if k.verb == count && rank >= made && !k.limit.Algorithm.Rolling() {
		w.Count = MaxCount
	}
	return w, rank < made, nil
}

// make makes a call, all or none, and sets the answers. It returns the rank of the call among equal ones. If the
// calendar window of the client's time can't open, it goes by the time of the store.
func (b *Backend) make(ctx context.Context, asks []ask) (rank int, err error) {
	var now time.Time
	for try := 0; ; try++ {
		c := &batched{Value: call{parts: make([]part, len(asks))}}
		for i := range asks {
			c.Value.parts[i] = part{asks[i].hash, b.text(&asks[i], now, i < len(asks)-1)}
		}
		v := asks[0].verb
		c.Value.equal = len(asks) == 1 && (v == take || v == peek || v == count && !asks[0].limit.Algorithm.Rolling())
		if err := b.do(ctx, c); err != nil {
			return 0, err
		}
		now = time.UnixMicro(c.Value.now)
		outside := false
		for i := range asks {
			asks[i].answer = c.Value.answer(i)
			outside = outside || asks[i].err() == errOutside
		}
		if !outside || try == retries {
			return c.Rank, nil
		}
	}
}

// do has a call sent.
func (b *Backend) do(ctx context.Context, c *batched) error {
	n, err := b.nodeOf(c.Value.parts[0].hash)
	if err != nil {
		return err
	}
	if sent, err := n.batcher.Do(ctx, c); err != nil {
		return notDone(err, sent)
	}
	if c.Value.err != nil && ctx.Err() != nil {
		return notDone(ctx.Err(), true)
	}
	return c.Value.err
}

// notDone returns the error of a call that was given up.
func notDone(err error, sent bool) error {
	if sent {
		return fmt.Errorf("%w; it may have been counted", err)
	}
	return fmt.Errorf("%w; it was not sent", err)
}

// appendFloat appends a number in binary form.
func appendFloat(to []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(f))
}

// float reads a number in binary form.
func float(s string) float64 {
	_ = s[7]
	return math.Float64frombits(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
}
