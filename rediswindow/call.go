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
	tail  int  // how long the text of the first part is up to the number of equal calls, which is 1

	now    int64 // of the server
	opens  int64 // the ID of the first window that the request opens
	result string
	err    error
}

type (
	batched = batch.Call[call]
	batcher = batch.Batcher[part, call]
)

// newCall returns a call, which is released when it was answered.
func (b *Backend) newCall() *batched {
	if c, ok := b.calls.Get().(*batched); ok {
		return c
	}
	return new(batched)
}

// release keeps a call that was answered for another one.
func (b *Backend) release(c *batched) {
	clear(c.Value.parts)
	c.Value = call{parts: c.Value.parts[:0]}
	c.Next = nil
	b.calls.Put(c)
}

// ask is what is asked of a limit.
type ask struct {
	verb  verb
	key   string
	hash  string // its name, if there is no key
	limit *window.Limit
	n     uint64
	id    int64     // of what is given back
	now   time.Time // by the clock of the store, for calendar windows; zero: it is not known yet
	more  bool      // the next part belongs to the same call

	opened bool // undo: the window was opened by what is undone
}

// add adds a part to a call.
func (b *Backend) add(c *call, a *ask) {
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
	to := append(space[:0], a.hash...)
	if a.hash == "" {
		to = b.appendName(to, a.key)
	}
	hash := len(to)
	to = append(to, byte(a.verb), letters[a.limit.Algorithm])
	if a.limit.Calendar != 0 {
		to = b.appendBounds(to, a)
	} else {
		to = strconv.AppendInt(to, a.limit.Scale.Microseconds(), 10)
	}
	for _, n := range [...]uint64{a.limit.Max, holds, min(a.n, MaxCount+1)} { // a larger n is more than any limit
		to = strconv.AppendUint(append(to, ' '), n, 10)
	}
	c.tail = len(to) + 1 - hash
	to = strconv.AppendUint(append(to, ' '), times, 10)
	if a.more {
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
	all := string(to)
	c.parts = append(c.parts, part{all[:hash], all[hash:]})
}

// times returns the text of a part for several equal calls.
func (c *call) times(m int) string {
	text := c.parts[0].text
	return text[:c.tail] + strconv.Itoa(m) + text[c.tail+1:]
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
type answer struct{ fit, count, left, retry, place, series, step float64 }

// answerSize is the size of an answer in a reply.
const answerSize = 7 * 8

// answer returns the answer for a part.
func (c *call) answer(i int) (a answer) {
	r := c.result[i*answerSize:]
	for at, f := range [...]*float64{&a.fit, &a.count, &a.left, &a.retry, &a.place, &a.series, &a.step} {
		*f = float(r[8*at:])
	}
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
func (a *answer) window(now int64, k *ask, rank, made int) (w window.Window) {
	if later := made - 1 - rank; later > 0 { // those after it have changed the window
		a.count -= float64(later) * float64(k.n)
		a.left -= math.Floor(float64(later) * a.step)
		if a.step > 0 { // the place is a count, too
			a.place -= float64(later) * float64(k.n)
		}
	}
	if a.left > 0 {
		left := int64(a.left)
		w.Count = min(uint64(max(a.count, 0)), MaxCount)
		w.Left = micros(left)
		w.ExpiresAt = time.UnixMicro(now).Add(w.Left)
	}
	w.Refused = (k.verb == take || k.verb == peek) && rank >= made
	if w.Refused {
		w.RetryAfter = window.Never
		if k.n <= holds(k.limit) {
			w.RetryAfter = max(micros(int64(min(a.retry, MaxCount))), time.Microsecond)
		}
	}
	switch {
	case a.left <= 0:
	case a.series < 0:
		w.ID = int64(a.place)
	case k.verb == take && !w.Refused && k.n > 0:
		w.ID = (int64(a.place)&(1<<placeBits-1))<<seriesBits | (int64(a.series) + 1)
	}
	return w
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n int64) time.Duration {
	return time.Duration(min(n, int64(window.Never/time.Microsecond))) * time.Microsecond
}

// one makes a call of one part. Fit says whether all of it was counted, given back or forgotten.
func (b *Backend) one(ctx context.Context, k *ask) (w window.Window, fit bool, err error) {
	w, fit, err = b.ask(ctx, k)
	for try := 0; err == errOutside && try < retries; try++ {
		w, fit, err = b.ask(ctx, k)
	}
	return w, fit, err
}

// ask is one, with the calendar window of the time that is known, or of the client's.
func (b *Backend) ask(ctx context.Context, k *ask) (w window.Window, fit bool, err error) {
	c := b.newCall()
	b.add(&c.Value, k)
	c.Value.equal = k.verb == take || k.verb == peek || k.verb == count && !k.limit.Algorithm.Rolling()
	if answered, err := b.do(ctx, c); !answered || err != nil {
		return w, false, err
	}
	a := c.Value.answer(0)
	k.now = time.UnixMicro(c.Value.now)
	if err = a.err(); err == nil {
		fit = c.Rank < int(a.fit)
		w = a.window(c.Value.now, k, c.Rank, int(a.fit))
		if k.verb == count && !fit && !k.limit.Algorithm.Rolling() {
			w.Count = MaxCount
		}
	}
	b.release(c)
	return w, fit, err
}

// do has a call sent. If it was answered, the caller releases it. Otherwise, it may still be under way.
func (b *Backend) do(ctx context.Context, c *batched) (answered bool, err error) {
	n, err := b.nodeOf(c.Value.parts[0].hash)
	if err != nil {
		return false, err
	}
	if sent, err := n.batcher.Do(ctx, c); err != nil {
		return false, notDone(err, sent)
	}
	if err := c.Value.err; err != nil && ctx.Err() != nil {
		return false, notDone(ctx.Err(), true)
	}
	return true, c.Value.err
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
