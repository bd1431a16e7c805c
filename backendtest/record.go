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
	ids    map[clientID]int64 // what the backend's windows and takes are in the Record: those until now
	calls  []made             // the last ones, for the texts of failures
}

// clientID is the ID of a window. Two clients tell windows apart by IDs of their own.
type clientID struct {
	second bool
	id     int64
}

// rules returns how a limit counts at a time.
func rules(l *window.Limit, at int64) (*algorithm.Algorithm, *algorithm.Rule, *algorithm.Time) {
	by := algorithm.RuleOf(l)
	return algorithm.Of(l.Algorithm), &by, &algorithm.Time{Now: at, Read: time.Unix(0, at)}
}

// describe returns the window of a state.
func describe(s algorithm.State) window.Window {
	return window.Window{Count: s.Count, Left: s.Left, Refused: s.Wait > 0, RetryAfter: s.Wait, ID: s.ID}
}

// peek returns what a take would, and changes nothing.
func (r *record) peek(l *window.Limit, n uint64, at int64) window.Window {
	a, by, t := rules(l, at)
	scratch := r.Record
	return describe(a.Peek(&scratch, by, t, n))
}

// window returns the window under a limit.
func (r *record) window(l *window.Limit, at int64) window.Window {
	w := r.peek(l, 0, at)
	w.Refused = false
	w.RetryAfter = 0
	return w
}

// left returns how long something still counts. It is negative if nothing has counted for so long.
func (r *record) left(l *window.Limit, at int64) time.Duration {
	a, by, t := rules(l, at)
	return a.Left(&r.Record, by, t)
}

// take counts n if it fits.
func (r *record) take(l *window.Limit, n uint64, at int64) window.Window {
	r.series++
	a, by, t := rules(l, at)
	return describe(a.Take(&r.Record, by, t, n, r.series))
}

// charge counts n. A window opens if there is none.
func (r *record) charge(l *window.Limit, n uint64, at int64) window.Window {
	if n == 0 && l.Algorithm.Rolling() {
		return r.window(l, at)
	}
	r.series++
	a, by, t := rules(l, at)
	return describe(a.Charge(&r.Record, by, t, n, r.series))
}

// giveBack gives n of a take back, and reports whether that is anything.
func (r *record) giveBack(c *call, at int64) bool {
	a, by, t := rules(&c.Limit, at)
	return a.GiveBack(&r.Record, by, t, r.ids[clientID{c.second, c.id}], c.N)
}

// ends returns the end of a window that opens at a time.
func ends(l *window.Limit, at int64) int64 {
	return at + int64(new(record).charge(l, 1, at).Left)
}
