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

// ask is what is asked of a limit, and the answer.
type ask struct {
	part  // when it is sent; what has no key has the hash at once
	verb  verb
	key   string
	limit window.Limit
	n     uint64
	id    int64 // of what is given back

	answer
}

// call is a call of a method: it asks something of one limit, or of several, all or none.
type call struct {
	asks   []ask
	one    [1]ask // asks, if it is one
	result string
	err    error
}

type (
	batched = batch.Call[call]
	batcher = batch.Batcher[part, call]
)

// newCall returns a call on several limits.
func newCall(asks []ask) *batched { return &batched{Value: call{asks: asks}} }

// shared returns what calls have in common that may be one entry, as they ask the same of one limit.
func (c *call) shared() (p part, may bool) {
	a := &c.asks[0]
	may = a.verb == take || a.verb == peek || a.verb == count && !a.limit.Algorithm.Rolling()
	return a.part, may && len(c.asks) == 1
}

// part returns what the script gets. If more is true, the next one belongs to the same call.
func (b *Backend) part(a *ask, more bool) part {
	holds, times := holds(&a.limit), uint64(1)
	switch {
	case a.verb == giveBack || a.verb == undo:
		holds, times = splitID(a.limit.Algorithm, a.id)
		if a.opened() {
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
	name := len(to)
	to = strconv.AppendUint(to, times, 10)
	to = append(to, ' ', byte(a.verb), letters[a.limit.Algorithm])
	if a.limit.Calendar != 0 {
		to = b.appendBounds(to, a)
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
		to = appendCalendar(to, &a.limit)
	}
	if a.limit.Name != "" {
		to = append(append(to, ':'), a.limit.Name...)
	}
	all := string(to)
	return part{all[:name], all[name:]}
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
type answer struct{ now, fit, count, left, retry, place, series float64 }

// answerSize is the size of an answer in a reply.
const answerSize = 7 * 8

// read reads an answer.
func (a *answer) read(reply string) {
	for i, f := range [...]*float64{&a.now, &a.fit, &a.count, &a.left, &a.retry, &a.place, &a.series} {
		*f = float(reply[8*i:])
	}
}

// opened reports whether the call has opened the window.
func (a *answer) opened() bool { return a.series == -2 }

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
func (a *ask) window(rank, made int) (w window.Window) {
	r := a.answer
	if later := float64(made - 1 - rank); later > 0 { // those after it have changed the window
		r.count -= later * float64(a.n)
		if a.limit.Algorithm == window.TokenBucket { // the place is a count, too
			r.place -= later * float64(a.n)
			r.left -= math.Floor(later * float64(a.n) * float64(a.limit.Scale.Microseconds()) / float64(a.limit.Max))
		}
	}
	if r.left > 0 {
		w.Count = min(uint64(max(r.count, 0)), MaxCount)
		w.Left = micros(r.left)
		w.ExpiresAt = time.UnixMicro(int64(r.now)).Add(w.Left)
	}
	w.Refused = (a.verb == take || a.verb == peek) && rank >= made
	if w.Refused {
		w.RetryAfter = window.Never
		if a.n <= holds(&a.limit) {
			w.RetryAfter = max(micros(r.retry), time.Microsecond)
		}
	}
	switch {
	case r.left <= 0:
	case r.series < 0:
		w.ID = int64(r.place)
	case a.verb == take && !w.Refused && a.n > 0:
		w.ID = (int64(r.place)&(1<<placeBits-1))<<seriesBits | (int64(r.series) + 1)
	}
	return w
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n float64) time.Duration {
	return time.Duration(min(n, float64(window.Never/time.Microsecond))) * time.Microsecond
}

// one makes a call on one limit. Fit says whether all of it was counted, given back or forgotten.
func (b *Backend) one(ctx context.Context, k ask) (w window.Window, fit bool, err error) {
	c := &batched{}
	c.Value.one[0] = k
	c.Value.asks = c.Value.one[:]
	err = b.make(ctx, c)
	a := &c.Value.asks[0]
	if err == nil {
		err = a.err()
	}
	if err != nil {
		return w, false, err
	}
	made := int(a.fit)
	w = a.window(c.Rank, made)
	if k.verb == count && c.Rank >= made && !k.limit.Algorithm.Rolling() {
		w.Count = MaxCount
	}
	return w, c.Rank < made, nil
}

// make makes a call, all or none, and sets the answers. If the calendar window of the client's time can't open, it
// goes by the time of the store.
func (b *Backend) make(ctx context.Context, c *batched) error {
	asks := c.Value.asks
	for try := 0; ; try++ {
		for i := range asks {
			asks[i].part = b.part(&asks[i], i < len(asks)-1)
		}
		if err := b.do(ctx, c); err != nil {
			return err
		}
		outside := false
		for i := range asks {
			asks[i].read(c.Value.result[i*answerSize:])
			outside = outside || asks[i].err() == errOutside
		}
		if !outside || try == retries {
			return nil
		}
	}
}

// do has a call sent.
func (b *Backend) do(ctx context.Context, c *batched) error {
	n, err := b.nodeOf(c.Value.asks[0].hash)
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
func float(s string) float64 { return math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[:8]))) }
