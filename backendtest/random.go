package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/throttr-go/throttr/window"
)

// mix is how often methods are called.
var mix = []method{
	hit, hit, hit, hit, take, take, take, take, takeAll, takeAll, takeAll, giveBack, giveBack, giveBack, peek, peek,
	charge, set, reset, deleteAll, list,
}

// walk makes random calls of some counts.
type walk struct {
	*suite
	*rand.Rand
	counts []count
	held   []call // that give back what was granted
}

// random makes random calls, and advances the clock in between.
func (s *suite) random(seeds uint64, steps, clients int) {
	s.clients = clients
	for seed := range seeds {
		w := walk{suite: s, Rand: rand.New(rand.NewPCG(seed, 6))}
		for range 10 {
			w.counts = append(w.counts, w.newCount(fmt.Sprintf("%d/%d ", seed, clients)))
		}
		for step := range steps {
			c := w.any()
			w.advance(c)
			if w.step(c); s.Failed() {
				s.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// newCount returns a count of one of some keys: half of them of the algorithm, and the others of any.
func (w *walk) newCount(prefix string) count {
	c := w.count(prefix + []string{"k", "k1", "other", "more"}[w.IntN(4)]).in(w.scale())
	if kinds := c.kinds("", "n"); w.IntN(2) == 0 {
		c = kinds[w.IntN(len(kinds))]
	}
	return c
}

func (w *walk) scale() time.Duration { return []time.Duration{100, 1000, 60_000}[w.IntN(3)] * w.unit }

// any returns calls of a client of one of the counts.
func (w *walk) any() count {
	return w.vary(w.counts[w.IntN(len(w.counts))].by(w.IntN(w.clients)))
}

// vary returns calls of the same count: with any Max, or of a token bucket, with any Burst, or with another name for
// UTC.
func (w *walk) vary(c count) count {
	switch {
	case c.limit.Algorithm != window.TokenBucket:
		c = c.upTo(w.Uint64N(12))
	case w.IntN(3) == 0:
		c = c.withBurst(1 + w.Uint64N(15))
	}
	if c.limit.Zone == "" && c.limit.Calendar != 0 && w.IntN(2) == 0 {
		c.limit.Zone = "UTC"
	}
	return c
}

// advance advances the clock by a part of the scale, or to the end of a window, or to just before it.
func (w *walk) advance(c count) {
	now := w.now()
	d := time.Duration(w.Int64N(max(1, int64(c.limit.Scale)/8))).Truncate(w.unit)
	left := c.record().window(&c.limit, now).Left
	switch {
	case w.IntN(20) == 0 && left < window.Never:
		d = max(0, left-time.Duration(w.IntN(2))*500*time.Microsecond)
	case w.IntN(2) == 0:
		d = (d / 10).Truncate(w.unit)
	}
	w.Clock.Advance(d)
}

// step makes a random call.
func (w *walk) step(c count) {
	most := max(c.limit.Max, c.limit.Burst)
	switch m := mix[w.IntN(len(mix))]; m {
	case hit, peek:
		w.again(c.call(m, w.Uint64N(max(4, most+2))))
	case take:
		w.take(c.call(take, 1+w.Uint64N(max(4, most/2))))
	case takeAll:
		w.takeSome(c)
	case charge:
		c.do(charge, 1+w.Uint64N(max(most, 1)))
	case set:
		c.do(set, w.Uint64N(max(4, most+1)))
	case giveBack:
		w.giveBack()
	case reset:
		c.do(reset, 0)
		w.changeRates()
		w.look(c)
	case deleteAll:
		if w.clients > 1 {
			return // one of several clients may not know all names
		}
		all := c.call(deleteAll, 0)
		all.scales = [][]time.Duration{nil, {w.scale(), w.scale(), 24 * time.Hour}}[w.IntN(2)]
		w.do(all)
		w.look(c)
	case list:
		all := call{method: list, client: c.client}
		if w.IntN(2) == 0 {
			all.keys = []string{c.key}
		}
		if w.has(list) {
			w.do(all)
		}
	}
}

// changeRates takes from all token buckets with another Max, which they have from then on: tokens come back in whole
// milliseconds, or never. A take of several that is refused may change a rate, or not.
func (w *walk) changeRates() {
	most := []uint64{0, 1, 4, 5, 10}[len(w.held)%5]
	for i, c := range w.counts {
		if c.limit.Algorithm == window.TokenBucket {
			w.counts[i] = c.upTo(most)
			w.counts[i].do(take, 1)
		}
	}
}

// look looks at all counts, by a client.
func (w *walk) look(by count) {
	for _, c := range w.counts {
		c.by(by.client).do(peek, 0)
	}
}

// again makes a call. If a rolling algorithm refuses it, it may make the call again just before RetryAfter, and then.
func (w *walk) again(c call) answer {
	a := w.do(c)
	if c.Limit.Algorithm.Rolling() && a.Refused && a.RetryAfter < window.Never && w.IntN(3) == 0 {
		tick := max(1, w.traits(c.Limit).Precision)
		w.Clock.Advance(a.RetryAfter - tick)
		w.do(c)
		w.Clock.Advance(tick)
		a = w.do(c)
	}
	return a
}

// take makes a take, and keeps what gives it back.
func (w *walk) take(c call) {
	if a := w.again(c); !a.Refused {
		w.held = append(w.held, call{method: giveBack, Take: c.Take, id: a.ID, client: c.client})
	}
}

// takeSome takes of some counts, of which one may be there more than once.
func (w *walk) takeSome(c count) {
	if !w.has(takeAll) || w.clients > 1 && w.Algorithm.Rolling() {
		w.take(c.call(take, 1+w.Uint64N(4)))
		return
	}
	all := call{method: takeAll, client: c.client}
	for range 2 + w.IntN(3) {
		all.takes = append(all.takes, c.take(1+w.Uint64N(4)))
		if w.IntN(4) > 0 {
			c = w.any().by(c.client)
		}
		c = w.vary(c)
	}
	a := w.do(all)
	for i, t := range all.takes {
		if a.ok {
			w.held = append(w.held, call{method: giveBack, Take: t, id: a.windows[i].ID, client: c.client})
		} else {
			w.do(call{method: peek, Take: t, client: c.client})
		}
	}
}

// giveBack gives back something that is held, and maybe not all of it, or to another count.
func (w *walk) giveBack() {
	if len(w.held) == 0 || !w.has(giveBack) {
		return
	}
	i := max(0, len(w.held)-8) + w.IntN(min(8, len(w.held))) // one of the last
	c := w.held[i]
	c.N = 1 + w.Uint64N(c.N)
	other := w.any()
	ids := other.record().ids // counts may have equal IDs
	if w.IntN(8) == 0 && ids[clientID{0, c.id}] == 0 && ids[clientID{1, c.id}] == 0 {
		c.Key = other.key
		c.Limit = other.limit
	} else {
		w.held = slices.Delete(w.held, i, i+1)
	}
	w.do(c)
	c.method = peek
	c.client = w.IntN(w.clients)
	w.do(c)
}
