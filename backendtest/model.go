package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// counted identifies a window of the model. The Max is 0, as it differs from call to call, but with a rolling
// algorithm.
type counted struct {
	key   string
	limit window.Limit
}

// holding is what a take in the model holds.
type holding struct {
	of         counted
	client     int // that has made the take
	id         int64
	state      state // of the window
	taken, end int64 // when it was made, and the end that it left
	n          uint64
}

// model is the simplest implementation of a backend, with one or two clients.
type model struct {
	calls    // of the client that makes the next call, and the window
	of       counted
	client   int
	clients  []calls
	keys     string
	scales   []time.Duration
	unit     time.Duration // of times
	random   *rand.Rand
	windows  map[counted]state
	held     []holding
	replaced bool // a window, by Set or Reset, in this step
}

// rollingLimits are limits whose tokens come back in whole milliseconds, with a scale of one second.
var rollingLimits = []uint64{1, 4, 5, 10}

// testModel makes random calls one after the other, advances the clock in between, and compares the
// results with those of the model.
func testModel(c calls) { c.compare(c.clients()[:1], 5, 5000) }

// testModelOfTwo is testModel with calls of two clients: each must find what the other one has left.
func testModelOfTwo(c calls) {
	for seed := range uint64(4) {
		c.compare(c.clients(), seed, 2000)
	}
}

// compare makes random calls of clients and compares the results with those of a model.
func (c calls) compare(clients []calls, seed uint64, steps int) {
	m := &model{
		clients: clients, random: rand.New(rand.NewPCG(seed, 6)), keys: fmt.Sprintf("%d/%d of ", seed, len(clients)),
		unit: c.stretch(time.Millisecond), windows: map[counted]state{},
	}
	m.scales = []time.Duration{1000 * m.unit}
	if !c.Algorithm.Rolling() {
		m.scales = []time.Duration{c.stretch(shortest), c.stretch(time.Second), c.stretch(time.Minute)}
	}
	for step := range steps {
		m.client = m.random.IntN(len(clients))
		m.calls = clients[m.client]
		m.of = m.any()
		m.calls = m.callsOf(m.client, m.of)
		m.advance()
		m.replaced = false
		m.step()
		if c.Failed() {
			c.Fatalf("seed %d, step %d, client %d, %+v", seed, step, m.client, m.of)
		}
		if m.replaced && c.Algorithm.Rolling() && c.SkipsDenied && len(clients) > 1 {
			// Until then, a client may count what it has read of the aligned window before.
			m.Clock.Advance(m.nextAligned())
		}
	}
}

// callsOf returns the calls of a client in a window.
func (m *model) callsOf(client int, of counted) calls {
	c := m.clients[client].on(of.key)
	c.limit = of.limit
	if c.limit.Max == 0 {
		c.limit.Max = 10
	}
	return c
}

// any returns one of the windows.
func (m *model) any() counted {
	l := window.Limit{Algorithm: m.Algorithm, Scale: m.scales[m.random.IntN(len(m.scales))]}
	if m.random.IntN(3) == 0 {
		l.Name = "n"
	}
	number := uint64(m.random.IntN(3))
	if m.Algorithm.Rolling() {
		l.Max = rollingLimits[m.random.IntN(len(rollingLimits))]
		number = l.Max
	}
	return counted{fmt.Sprint(m.keys, "k", number), l}
}

// advance advances the clock by a part of the scale, or to the end of a window.
func (m *model) advance() {
	if m.Algorithm.Rolling() {
		d := time.Duration(m.random.Int64N(30))
		if m.random.IntN(20) == 0 {
			d = time.Duration(m.random.Int64N(1500))
		}
		m.Clock.Advance(d * m.unit)
		return
	}
	d := time.Duration(m.random.Int64N(int64(m.of.limit.Scale) / 8)).Truncate(time.Millisecond)
	switch _, end := m.window(m.of).count(m.now()); {
	case m.random.IntN(20) == 0:
		d = max(0, time.Duration(end-m.now())-time.Duration(m.random.IntN(2))*500*time.Microsecond)
	case m.random.IntN(2) == 0:
		d /= 10
	}
	m.Clock.Advance(d)
}

func (m *model) now() int64 { return m.Clock.Now().UnixNano() }

// window returns the state of a window.
func (m *model) window(of counted) state {
	if m.windows[of] == nil {
		m.windows[of] = newState(m.Algorithm, int64(of.limit.Scale), int64(of.limit.Max))
	}
	return m.windows[of]
}

// step makes a random call.
func (m *model) step() {
	most := m.of.limit.Max
	switch m.random.IntN(20) {
	case 0:
		n := 1 + m.random.Uint64N(max(most, 1))
		got := m.charge(n)
		m.window(m.of).add(m.now(), n)
		m.found(m.of, got)
	case 1, 2, 3, 4:
		m.hitOne(m.limitOf(m.of, 0), m.random.Uint64N(max(4, most+2)))
	case 5:
		n := m.random.Uint64N(max(4, most+1))
		if most > 0 {
			n = min(n, most)
		}
		got := m.set(n)
		m.forget()
		m.window(m.of).add(m.now(), n)
		m.found(m.of, got)
	case 6:
		m.reset()
		m.forget()
	case 7:
		if len(m.clients) == 1 { // one of several may not know all names
			m.deleteSome(m.scales[:1+m.random.IntN(len(m.scales))])
		}
	case 8, 9:
		m.found(m.of, m.get())
	case 10, 11, 12:
		m.giveBackOne()
	case 13, 14, 15, 16:
		m.takeSome(m.of)
	default:
		all := []counted{m.of}
		for range 1 + m.random.IntN(3) {
			all = append(all, m.any())
		}
		if m.without("TakeAll") != "" || m.Algorithm.Rolling() && len(m.clients) > 1 {
			all = all[:1]
		}
		m.takeSome(all...)
	}
}

// limitOf returns the limit of a call: of fixed windows, it can differ from that of others.
func (m *model) limitOf(of counted, least uint64) uint64 {
	if of.limit.Max > 0 {
		return of.limit.Max
	}
	return least + m.random.Uint64N(12)
}

// countedBy returns the window of a take.
func (m *model) countedBy(t window.Take) counted {
	of := counted{t.Key, window.Limit{Name: t.Limit.Name, Scale: t.Limit.Scale, Algorithm: t.Limit.Algorithm}}
	if m.Algorithm.Rolling() {
		of.limit.Max = t.Limit.Max
	}
	return of
}

// forget ends the window of this step in the model.
func (m *model) forget() {
	delete(m.windows, m.of)
	m.replaced = true
}

// found compares a window with that of the model.
func (m *model) found(of counted, got window.Window) {
	now := m.now()
	n, end := m.window(of).count(now)
	if end <= now {
		m.none(got)
		return
	}
	m.calls.state(got, n)
	m.left(got, time.Duration(end-now), 1)
}

// hitOne makes a hit.
func (m *model) hitOne(limit, n uint64) {
	got := m.upTo(limit).hit(n)
	s := m.window(m.of)
	before, _ := s.count(m.now())
	granted := n <= limit && before <= limit-n
	switch {
	case m.Algorithm.Rolling():
		if got.Refused == granted || n > limit && got.RetryAfter != window.Never {
			m.Errorf("a hit of %d of %d with a count of %d returns %+v", n, limit, before, got)
		}
		if granted && n > 0 {
			s.add(m.now(), n)
		}
	case m.RefusesHits && n > 0 && !granted:
		m.expect(got.Count == before+n, "a hit of %d that is refused returns count %d, want %d without it", n, got.Count-n, before)
		return
	case !m.SkipsDenied || before <= limit || got.Count != before:
		s.add(m.now(), n)
	}
	m.found(m.of, got)
}

// deleteSome deletes a key's windows of some scales. If these are all scales, it calls Delete
// without scales.
func (m *model) deleteSome(scales []time.Duration) {
	want := 0
	for of, s := range m.windows {
		if of.key == m.key && slices.Contains(scales, of.limit.Scale) {
			if _, end := s.count(m.now()); end > m.now() {
				want++
			}
			delete(m.windows, of)
		}
	}
	if len(scales) == len(m.scales) {
		scales = nil
	}
	m.delete(want, scales...)
}

// takeSome takes of some windows, of which one may be there more than once.
func (m *model) takeSome(all ...counted) {
	takes := make([]window.Take, len(all))
	for i, of := range all {
		takes[i] = m.callsOf(m.client, of).upTo(m.limitOf(of, 3)).takeOf(1 + m.random.Uint64N(4))
	}
	want := true
	merged, _ := limits.Merge(takes)
	for _, t := range merged {
		count, _ := m.window(m.countedBy(t)).count(m.now())
		want = want && t.N <= t.Limit.Max && count <= t.Limit.Max-t.N
	}
	before := m.now()
	windows, granted := m.taken(takes...)
	switch {
	case granted != want:
		m.Errorf("the takes %+v return %v, want %v", takes, granted, want)
		return
	case granted:
		m.hold(all, takes, windows, before)
	case len(m.clients) > 1 && m.SkipsDenied && !m.Algorithm.Rolling() && (len(all) > 1 || m.MayLose):
		for _, t := range merged {
			m.adopt(m.countedBy(t), t.N, before)
		}
		return
	}
	if m.now() != before {
		return // the states are of different times
	}
	for i, of := range all {
		m.found(of, windows[i])
	}
}

// hold adds takes that were granted, and made after a time.
func (m *model) hold(all []counted, takes []window.Take, windows []window.Window, before int64) {
	now := m.now()
	for i, of := range all {
		s := m.window(of)
		over := windows[i].ExpiresAt.Add(-m.Precision).UnixNano()
		if _, end := s.count(before); end > before && (now < end || over <= end) { // it may be over by now
			s.add(before, takes[i].N)
			continue
		}
		s.add(now, takes[i].N)
		m.openedSince(s, before, windows[i])
	}
	for i, of := range all { // those of one window have one end
		s := m.window(of)
		_, end := s.count(now)
		m.held = append(m.held, holding{of, m.client, windows[i].ID, s, now, end, takes[i].N})
	}
}

// openedSince makes the end of a fixed window that a take has opened after a time that which it has: it may have
// opened before now if another take of the same call has waited.
func (m *model) openedSince(s state, before int64, got window.Window) {
	if f, ok := s.(*fixedState); ok && !got.ExpiresAt.IsZero() {
		if end := got.ExpiresAt.UnixNano(); end < f.end && end >= f.ends(before) {
			f.end = end
		}
	}
}

// adopt makes the model agree with what a take of n that was refused with others may leave. A client that does
// not know what the other one has taken may take first, and give back then: a window is open now, with a count of
// 0, or with more if a give-back may be lost. The states that the takes return may be what the client has known.
func (m *model) adopt(of counted, n uint64, before int64) {
	s := m.window(of).(*fixedState)
	count, end := s.count(m.now())
	got := m.callsOf(m.client, of).get()
	if got.Left <= 0 && end <= m.now() {
		return
	}
	if end <= m.now() {
		s.add(m.now(), 0)
		m.openedSince(s, before, got)
	}
	if m.MayLose && got.Count-count <= n {
		s.hits = got.Count // what was lost stays counted
	}
	m.found(of, got)
}

// giveBackOne gives back something that is held, and maybe not all of it.
func (m *model) giveBackOne() {
	if len(m.held) == 0 {
		return
	}
	i := m.random.IntN(len(m.held))
	h := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	same := m.windows[h.of] == h.state
	if !same && m.Algorithm.Rolling() {
		return
	}
	c, now := m.callsOf(h.client, h.of), m.now()
	n := 1 + m.random.Uint64N(h.n)
	ok, err := c.Backend.GiveBack(c.Context(), c.key, c.limit, n, h.id)
	c.checked(err, "GiveBack", n)
	bucket, isBucket := h.state.(*bucketState)
	if !ok && (m.MayLose || isBucket) {
		return
	}
	if want := same && h.state.giveBack(now, h.taken, h.end, n); ok != want {
		m.Errorf("GiveBack of %d to %+v, taken %v ago, returns %v, want %v", n, h.of, time.Duration(now-h.taken), ok, want)
	}
	got := m.callsOf(m.client, h.of).get() // maybe of the other client
	if isBucket && ok {
		bucket.adopt(m.calls, got)
	}
	m.found(h.of, got)
}
