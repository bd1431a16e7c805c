package backendtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// modelID identifies a window of the model.
type modelID struct {
	key, name string
	scale     time.Duration
	most      uint64 // the limit of a window of a rolling algorithm, which is always the same
}

// holding is what a take in the model holds.
type holding struct {
	id         modelID
	client     int // that has made the take
	windowID   int64
	state      state // of the window
	taken, end int64 // when it was made, and the end that it left
	n          uint64
}

// model is the simplest implementation of a backend, with one or two clients.
type model struct {
	calls    // of the client that makes the next call, with the name of the window
	clients  []calls
	client   int // that makes the next call
	keys     string
	scales   []time.Duration
	unit     time.Duration // of times
	random   *rand.Rand
	windows  map[modelID]state
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
		unit: c.stretch(time.Millisecond), windows: map[modelID]state{},
	}
	m.scales = []time.Duration{1000 * m.unit}
	if !c.Algorithm.Rolling() {
		m.scales = []time.Duration{c.stretch(shortest), c.stretch(time.Second), c.stretch(time.Minute)}
	}
	for step := range steps {
		m.use(0, modelID{})
		id := m.any()
		m.use(m.random.IntN(len(clients)), id)
		m.advance(id)
		m.replaced = false
		m.step(id)
		if c.Failed() {
			c.Fatalf("seed %d, step %d, client %d, %+v", seed, step, m.client, id)
		}
		if m.replaced && c.Algorithm.Rolling() && c.SkipsDenied && len(clients) > 1 {
			// Until then, a client may count what it has read of the aligned window before.
			m.Clock.Advance(m.nextAligned(id.scale))
		}
	}
}

// use makes the next calls those of a client, in windows with the name and the limit of one.
func (m *model) use(client int, id modelID) { m.client, m.calls = client, m.of(client, id) }

// of returns the calls of a client in windows with the name and the limit of one.
func (m *model) of(client int, id modelID) calls {
	c := m.clients[client].named(id.name)
	if id.most > 0 {
		c = c.upTo(id.most)
	}
	return c
}

// any returns one of the windows.
func (m *model) any() modelID {
	names := [...]string{"", "", "n"}
	id := modelID{name: names[m.random.IntN(3)], scale: m.scales[m.random.IntN(len(m.scales))]}
	number := m.random.IntN(3)
	if m.Algorithm.Rolling() {
		id.most = rollingLimits[m.random.IntN(len(rollingLimits))]
		number = int(id.most)
	}
	id.key = fmt.Sprint(m.keys, "k", number)
	return id
}

// advance advances the clock by a part of the scale, or to the end of a window.
func (m *model) advance(id modelID) {
	if m.Algorithm.Rolling() {
		d := time.Duration(m.random.Int64N(30))
		if m.random.IntN(20) == 0 {
			d = time.Duration(m.random.Int64N(1500))
		}
		m.Clock.Advance(d * m.unit)
		return
	}
	d := time.Duration(m.random.Int64N(int64(id.scale) / 8)).Truncate(time.Millisecond)
	switch _, end := m.window(id).count(m.now()); {
	case m.random.IntN(20) == 0:
		d = max(0, time.Duration(end-m.now())-time.Duration(m.random.IntN(2))*500*time.Microsecond)
	case m.random.IntN(2) == 0:
		d /= 10
	}
	m.Clock.Advance(d)
}

func (m *model) now() int64 { return m.Clock.Now().UnixNano() }

// window returns the state of a window.
func (m *model) window(id modelID) state {
	if m.windows[id] == nil {
		m.windows[id] = newState(m.Algorithm, int64(id.scale), int64(id.most))
	}
	return m.windows[id]
}

// step makes a random call.
func (m *model) step(id modelID) {
	switch m.random.IntN(20) {
	case 0:
		n := 1 + m.random.Uint64N(max(id.most, 1))
		got := m.charge(id.key, id.scale, n)
		m.window(id).charge(m.now(), n)
		m.found(id, got)
	case 1, 2, 3, 4:
		m.hitOne(id, m.limitOf(id, 0), m.random.Uint64N(max(4, id.most+2)))
	case 5:
		n := m.random.Uint64N(max(4, id.most+1))
		if id.most > 0 {
			n = min(n, id.most)
		}
		got := m.set(id.key, id.scale, n)
		m.forget(id)
		m.window(id).add(m.now(), n)
		m.found(id, got)
	case 6:
		m.reset(id.key, id.scale)
		m.forget(id)
	case 7:
		if len(m.clients) == 1 { // one of several may not know all names
			m.deleteSome(id.key, m.scales[:1+m.random.IntN(len(m.scales))])
		}
	case 8, 9:
		m.found(id, m.get(id.key, id.scale))
	case 10, 11, 12:
		m.giveBackOne()
	case 13, 14, 15, 16:
		m.takeSome([]modelID{id})
	default:
		ids := []modelID{id}
		for range 1 + m.random.IntN(3) {
			ids = append(ids, m.any())
		}
		if _, without := m.Without["TakeAll"]; without || m.Algorithm.Rolling() && len(m.clients) > 1 {
			ids = ids[:1]
		}
		m.takeSome(ids)
	}
}

// limitOf returns the limit of a call: of fixed windows, it can differ from that of others.
func (m *model) limitOf(id modelID, least uint64) uint64 {
	if id.most > 0 {
		return id.most
	}
	return least + m.random.Uint64N(12)
}

// idOf returns the window of a take.
func (m *model) idOf(t window.Take) modelID {
	id := modelID{key: t.Key, name: t.Limit.Name, scale: t.Limit.Scale}
	if m.Algorithm.Rolling() {
		id.most = t.Limit.Max
	}
	return id
}

// forget ends a window in the model.
func (m *model) forget(id modelID) {
	delete(m.windows, id)
	m.replaced = true
}

// found compares a window with that of the model.
func (m *model) found(id modelID, got window.Window) {
	now := m.now()
	n, end := m.window(id).count(now)
	if end <= now {
		m.none(got)
		return
	}
	m.calls.state(got, n)
	m.left(got, time.Duration(end-now), 1)
}

// hitOne makes a hit.
func (m *model) hitOne(id modelID, limit, n uint64) {
	got := m.hit(id.key, id.scale, limit, n)
	before, _ := m.window(id).count(m.now())
	granted := n <= limit && before <= limit-n
	switch {
	case m.Algorithm.Rolling():
		if got.Refused == granted || n > limit && got.RetryAfter != window.Never {
			m.Errorf("a hit of %d of %d with a count of %d returns %+v", n, limit, before, got)
		}
		if !granted {
			n = 0
		}
	case m.SkipsDenied && before > limit && got.Count == before:
		n = 0
	case m.RefusesHits && n > 0 && before+n > limit:
		if got.Count != before+n {
			m.Errorf("a hit of %d that is refused returns count %d, want %d without it", n, got.Count-n, before)
		}
		return
	}
	if n > 0 || !m.Algorithm.Rolling() {
		m.window(id).add(m.now(), n)
	}
	m.found(id, got)
}

// deleteSome deletes a key's windows of some scales. If these are all scales, it calls Delete
// without scales.
func (m *model) deleteSome(key string, scales []time.Duration) {
	want := 0
	for id, s := range m.windows {
		if id.key == key && slices.Contains(scales, id.scale) {
			if _, end := s.count(m.now()); end > m.now() {
				want++
			}
			delete(m.windows, id)
		}
	}
	if len(scales) == len(m.scales) {
		scales = nil
	}
	if got := m.delete(key, scales...); got != want {
		m.Errorf("Delete(%q, %v) returns %d, want %d", key, scales, got, want)
	}
}

// takeSome takes of some windows, of which one may be there more than once.
func (m *model) takeSome(ids []modelID) {
	takes := make([]window.Take, len(ids))
	for i, id := range ids {
		takes[i] = m.named(id.name).limit(id.scale, m.limitOf(id, 3)).For(id.key, 1+m.random.Uint64N(4))
	}
	want := true
	merged, _ := limits.Merge(takes)
	for _, t := range merged {
		count, _ := m.window(m.idOf(t)).count(m.now())
		want = want && t.N <= t.Limit.Max && count <= t.Limit.Max-t.N
	}
	before := m.now()
	windows, granted := m.taken(takes)
	if granted != want {
		m.Errorf("the takes %+v return %v, want %v", takes, granted, want)
		return
	}
	if granted {
		m.takeThem(ids, takes, windows, before)
	}
	if !granted && len(m.clients) > 1 && m.SkipsDenied && !m.Algorithm.Rolling() && (len(ids) > 1 || m.MayLose) {
		for _, t := range merged {
			m.adopt(m.idOf(t), t.N, before)
		}
		return
	}
	if m.now() != before {
		return // the states are of different times
	}
	for i, id := range ids {
		m.found(id, windows[i])
	}
}

// taken makes takes.
func (m *model) taken(takes []window.Take) (windows []window.Window, granted bool) {
	if len(takes) > 1 {
		return m.takeAll(takes...)
	}
	t := takes[0]
	w := m.take(t.Key, t.Limit.Scale, t.Limit.Max, t.N)
	return []window.Window{w}, !w.Refused
}

// takeThem adds takes that were granted, and made after a time.
func (m *model) takeThem(ids []modelID, takes []window.Take, windows []window.Window, before int64) {
	now := m.now()
	for i, id := range ids {
		s := m.window(id)
		over := windows[i].ExpiresAt.Add(-m.Precision).UnixNano()
		if _, end := s.count(before); end > before && (now < end || over <= end) { // it may be over by now
			s.add(before, takes[i].N)
			continue
		}
		s.add(now, takes[i].N)
		m.openedSince(s, before, windows[i])
	}
	for i, id := range ids { // those of one window have one end
		s := m.window(id)
		_, end := s.count(now)
		m.held = append(m.held, holding{id, m.client, windows[i].ID, s, now, end, takes[i].N})
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
func (m *model) adopt(id modelID, n uint64, before int64) {
	s := m.window(id).(*fixedState)
	count, end := s.count(m.now())
	got := m.named(id.name).get(id.key, id.scale)
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
	m.found(id, got)
}

// giveBackOne gives back something that is held, and maybe not all of it.
func (m *model) giveBackOne() {
	if len(m.held) == 0 {
		return
	}
	i := m.random.IntN(len(m.held))
	h := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	same := m.windows[h.id] == h.state
	if !same && m.Algorithm.Rolling() {
		return
	}
	c, n, now := m.of(h.client, h.id), 1+m.random.Uint64N(h.n), m.now()
	ok, err := c.Backend.GiveBack(c.Context(), h.id.key, c.limit(h.id.scale, c.most), n, h.windowID)
	c.checked(err, "GiveBack", h.id.key, c.limit(h.id.scale, c.most), n)
	bucket, isBucket := h.state.(*bucketState)
	if !ok && (m.MayLose || isBucket) {
		return
	}
	if want := same && h.state.giveBack(now, h.taken, h.end, n); ok != want {
		m.Errorf("GiveBack of %d to %+v, taken %v ago, returns %v, want %v", n, h.id, time.Duration(now-h.taken), ok, want)
	}
	got := m.of(m.client, h.id).get(h.id.key, h.id.scale) // maybe of the other client
	if isBucket && ok {
		bucket.adopt(m.calls, got)
	}
	m.found(h.id, got)
}
