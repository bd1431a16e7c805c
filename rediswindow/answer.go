package rediswindow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// answer is what the script says of a limit. See lua/windows.lua.
type answer struct {
	now, fit, used, left, wait, place, series float64
	rank                                      int // of the call among equal ones, of which the first fit
}

// outside is the fit of a calendar window that can't open, as the store's time is in another one.
const outside = -3

// answerSize is the size of an answer in a reply.
const answerSize = 7 * 8

// readAnswer reads an answer, which a reply begins with, for a call of a rank.
func readAnswer(reply string, rank int) (a answer) {
	for i, f := range [...]*float64{&a.now, &a.fit, &a.used, &a.left, &a.wait, &a.place, &a.series} {
		*f = float(reply[8*i:])
	}
	a.rank = rank
	return a
}

// appendFloat appends a number in binary form.
func appendFloat(to []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(f))
}

// float reads a number in binary form.
func float(s string) float64 { return math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[:8]))) }

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
	place := o.answer.place
	if made && fits > 1 { // equal calls after it have changed the window
		later := float64(fits-1-o.answer.rank) * float64(o.n)
		used -= later
		if o.limit.Algorithm == window.TokenBucket { // the place is a count, too
			place -= later
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
		w.ID = int64(place)
	case o.verb == take && made && o.n > 0:
		w.ID = idOf(place, o.answer.series)
	}
	return w, made, nil
}

// micros returns a number of microseconds, which may be more than a Duration holds.
func micros(n float64) time.Duration {
	return time.Duration(min(n, float64(window.Never/time.Microsecond))) * time.Microsecond
}
