package backendtest

import (
	"math/big"
	"slices"
	"sort"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// record is what the model knows of a count: all that was counted, and was not given back, in the window that is open.
// The algorithms are functions of it. Times are nanoseconds since 1970.
type record struct {
	entries []entry           // of the open window: one of a fixed one, and one for each call of a rolling algorithm
	end     int64             // of a fixed window
	ids     map[clientID]bool // of the fixed window that is open
	used    map[clientID]bool // that are those of the windows until now
	gave    bool              // a token bucket has got something back
	calls   []made            // the last ones, for the texts of failures
}

// clientID is the ID of a window. Two clients tell windows apart by IDs of their own.
type clientID struct {
	second bool
	id     int64
}

// entry is what was counted at a time.
type entry struct {
	at    int64
	n     uint64
	id    int64 // of the take
	limit window.Limit
	back  *big.Int // what of it a token bucket has got back, or never given, in tokens times nanoseconds
}

// owed returns what an entry takes from a token bucket.
func (e entry) owed() *big.Int { return new(big.Int).Sub(product(e.n, int64(e.limit.Scale)), e.back) }

// weight returns what counts in so much time from now if nobody calls, in units of 1/parts.
func (r *record) weight(l *window.Limit, now int64) (parts int64, weight func(in int64) *big.Int) {
	scale := int64(l.Scale)
	switch l.Algorithm {
	case window.TokenBucket:
		debt := r.debt(now)
		return scale, func(in int64) *big.Int { return pay(debt, l.Max, in) }
	case window.SlidingWindow:
		return scale, func(in int64) *big.Int { return r.weighted(scale, now+in) }
	case window.SlidingLog:
		return 1, func(in int64) *big.Int {
			return product(r.sum(func(e entry) bool { return now+in-e.at < scale }),
				1)
		}
	default:
		return 1, func(in int64) *big.Int { return product(r.sum(func(entry) bool { return now+in < r.end }), 1) }
	}
}

// sum returns the sum of entries for which a function returns true.
func (r *record) sum(counts func(entry) bool) (sum uint64) {
	for _, e := range r.entries {
		if counts(e) {
			sum += e.n
		}
	}
	return sum
}

// weighted returns the weight of a sliding window: of the aligned window before, what lies in the last scale.
func (r *record) weighted(scale, at int64) *big.Int {
	before := r.sum(func(e entry) bool { return e.at/scale == at/scale-1 })
	present := r.sum(func(e entry) bool { return e.at/scale == at/scale })
	weight := product(before, scale-at%scale)
	return weight.Add(weight, product(present, scale))
}

// debt returns what a token bucket lacks, in tokens times nanoseconds: Max are paid in a nanosecond, and a token is a
// scale.
func (r *record) debt(now int64) *big.Int {
	debt := new(big.Int)
	var paid int64    // until when
	most := uint64(0) // that are paid in a nanosecond
	for _, e := range r.entries {
		debt = pay(debt, most, e.at-paid)
		debt.Add(debt, e.owed())
		paid = e.at
		most = e.limit.Max
	}
	return pay(debt, most, now-paid)
}

// pay returns a debt after some time.
func pay(debt *big.Int, most uint64, in int64) *big.Int { return less(debt, product(most, in)) }

// less returns a - b, or 0 if that is negative.
func less(a, b *big.Int) *big.Int {
	if a.Cmp(b) <= 0 {
		return new(big.Int)
	}
	return new(big.Int).Sub(a, b)
}

func product(n uint64, by int64) *big.Int {
	p := new(big.Int).SetUint64(n)
	return p.Mul(p, big.NewInt(by))
}

// count returns what counts in so much time from now, rounded up.
func (r *record) count(l *window.Limit, now int64) func(in int64) uint64 {
	parts, weight := r.weight(l, now)
	return func(in int64) uint64 {
		up := weight(in)
		up.Add(up, big.NewInt(parts-1))
		return up.Div(up, big.NewInt(parts)).Uint64()
	}
}

// until returns the shortest time from now until a condition holds, which then goes on to hold, or window.Never.
func until(holds func(in int64) bool) time.Duration {
	return time.Duration(sort.Search(int(window.Never), func(in int) bool { return holds(int64(in)) }))
}

// window returns the window under a limit.
func (r *record) window(l *window.Limit, now int64) (w window.Window) {
	count := r.count(l, now)
	w.Count = count(0)
	if l.Algorithm.Rolling() {
		w.Left = until(func(in int64) bool { return count(in) == 0 })
	} else {
		w.Left = time.Duration(max(0, r.end-now))
	}
	if w.Left > 0 {
		w.ExpiresAt = time.Unix(0, now).Add(w.Left)
	}
	return w
}

// take decides a take: the window before it, with the verdict.
func (r *record) take(l *window.Limit, n uint64, now int64) window.Window {
	w, holds := r.window(l, now), limits.Capacity(l)
	count := r.count(l, now)
	switch {
	case n > holds:
		w.Refused = true
		w.RetryAfter = window.Never
	case w.Count > holds-n:
		w.Refused = true
		w.RetryAfter = until(func(in int64) bool { return count(in) <= holds-n })
	}
	return w
}

// add counts n. A fixed window opens if there is none.
func (r *record) add(l *window.Limit, n uint64, id, now int64) {
	if l.Algorithm.Rolling() {
		r.addRolling(l, n, id, now)
		return
	}
	if now >= r.end {
		r.forget()
		r.entries = []entry{{at: now}}
		r.end = ends(l, now)
	}
	r.entries[0].n += n
}

func (r *record) addRolling(l *window.Limit, n uint64, id, now int64) {
	if _, weight := r.weight(l, now); weight(0).Sign() == 0 {
		r.forget()
	}
	same := slices.IndexFunc(r.entries, func(e entry) bool { return e.id == id && id != 0 })
	switch {
	case l.Algorithm == window.TokenBucket:
		r.addTokens(l, n, id, now)
	case same >= 0: // takes of one time
		r.entries[same].n += n
	default:
		r.entries = append(r.entries, entry{at: now, n: n, id: id})
	}
}

// addTokens takes n tokens. The bucket owes its burst, and no more.
func (r *record) addTokens(l *window.Limit, n uint64, id, now int64) {
	room := less(product(2*limits.Capacity(l), int64(l.Scale)), r.debt(now))
	e := entry{now, n, id, *l, new(big.Int)}
	e.back = less(e.owed(), room)
	r.entries = append(r.entries, e)
}

// refuse is a take that was refused: a token bucket gains tokens by its limit from now on.
func (r *record) refuse(l *window.Limit, now int64) {
	if last := len(r.entries) - 1; l.Algorithm == window.TokenBucket && l.Max > 0 && last >= 0 &&
		r.entries[last].limit.Max != l.Max {
		r.add(l, 0, 0, now)
	}
}

// forget ends the window.
func (r *record) forget() {
	r.entries = nil
	r.end = 0
	clear(r.ids)
	r.gave = false
}

// giveBack gives n of a take back: all that still counts of them. It reports whether that is anything.
func (r *record) giveBack(c *call, now int64) bool {
	l := &c.Limit
	n := c.N
	of := slices.IndexFunc(r.entries, func(e entry) bool { return e.id == c.id && e.n >= n })
	if !l.Algorithm.Rolling() && now < r.end && r.ids[clientID{c.second, c.id}] {
		of = 0 // all takes are one entry
	}
	switch scale := int64(l.Scale); {
	case of < 0:
		return false
	case l.Algorithm == window.TokenBucket:
		return r.giveTokens(&r.entries[of], r.entries[of+1:], n, now)
	case l.Algorithm == window.SlidingWindow && r.entries[of].at/scale < now/scale-1:
		return false
	case l.Algorithm == window.SlidingLog && now-r.entries[of].at >= scale:
		return false
	}
	r.entries[of].n -= n
	return true
}

// giveTokens gives n of a take back to a token bucket, but not what has come back by itself: what is owed longest is paid
// first.
func (r *record) giveTokens(of *entry, later []entry, n uint64, now int64) bool {
	rest := r.debt(now)
	for _, e := range later {
		rest = less(rest, e.owed())
	}
	for _, most := range []*big.Int{of.owed(), product(n, int64(of.limit.Scale))} {
		if rest.Cmp(most) > 0 {
			rest = most
		}
	}
	of.back.Add(of.back, rest)
	return rest.Sign() > 0
}

// ends returns the end of a window that opens at a time.
func ends(l *window.Limit, at int64) int64 {
	now := time.Unix(0, at).UTC()
	switch l.Algorithm {
	case window.CalendarWindow:
		calendar, err := limits.CalendarOf(l)
		if err != nil {
			panic(err)
		}
		_, end := calendar.Window(now)
		return end.UnixNano()
	case window.AlignedWindow:
		return at - at%int64(l.Scale) + int64(l.Scale)
	default:
		return at + int64(l.Scale)
	}
}
