package backendtest

import (
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// record is what the model knows of a count: the record of its algorithm. Times are nanoseconds since 1970.
type record struct {
	algorithm.Record
	series uint64             // of the last call that counted
	ids    map[clientID]int64 // the ID in the Record of each window or take that the backend has returned so far
	calls  []made             // the last ones, for the texts of failures
}

// clientID is the ID of a window. Two clients tell windows apart by IDs of their own.
type clientID struct {
	client int
	id     int64
}

// at returns a time in nanoseconds since 1970.
func at(nanos int64) algorithm.Time { return algorithm.At(time.Unix(0, nanos)) }

// peek returns what a take would, and changes nothing.
func (r *record) peek(l *window.Limit, n uint64, now int64) window.Window {
	by, scratch := algorithm.RuleOf(l), r.Record
	return by.Call(algorithm.Peek, &scratch, at(now), n, 0).Window(at(now))
}

// window returns the window under a limit.
func (r *record) window(l *window.Limit, now int64) window.Window {
	w := r.peek(l, 0, now)
	w.Refused = false
	w.RetryAfter = 0
	return w
}

// left returns how long something still counts. It is negative if nothing has counted for so long.
func (r *record) left(l *window.Limit, now int64) time.Duration {
	by := algorithm.RuleOf(l)
	return by.Left(&r.Record, at(now))
}

// call makes a take, a charge, or a set.
func (r *record) call(v algorithm.Verb, l *window.Limit, n uint64, now int64) window.Window {
	if v == algorithm.Charge && n == 0 && l.Algorithm.Rolling() {
		return r.window(l, now)
	}
	r.series++
	by := algorithm.RuleOf(l)
	return by.Call(v, &r.Record, at(now), n, r.series).Window(at(now))
}
