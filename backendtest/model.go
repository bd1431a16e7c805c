package backendtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// modelID identifies a window of the model.
type modelID struct {
	key, name string
	scale     time.Duration
}

// modelWindow is a window in the model.
type modelWindow struct {
	count  uint64
	end    time.Time
	serial int // tells it from others
}

// holding is what a take in the model holds.
type holding struct {
	id       modelID
	client   int // that has made the take
	windowID int64
	serial   int // of the window in the model
	n        uint64
}

// model is the simplest implementation of a backend, with one or two clients.
type model struct {
	calls   // of the client that makes the next call, with the name of the window
	clients []calls
	client  int // that makes the next call
	keys    string
	scales  []time.Duration
	random  *rand.Rand
	windows map[modelID]modelWindow
	held    []holding
	serials int // of the window that was opened last
}

// testModel makes random calls one after the other, advances the clock in between, and compares the
// results with those of the model.
func testModel(c calls) { c.compare(c.clients()[:1], 5, 5000) }

// testModelOfTwo is testModel with calls of two clients: each must find what the other one has left.
func testModelOfTwo(c calls) {
	for seed := range uint64(4) {
		c.compare(c.clients(), seed, 1500)
	}
}

// compare makes random calls of clients and compares the results with those of a model.
func (c calls) compare(clients []calls, seed uint64, steps int) {
	random := rand.New(rand.NewPCG(seed, 6))
	m := &model{clients: clients, random: random, keys: fmt.Sprintf("%d/%d of ", seed, len(clients)), windows: map[modelID]modelWindow{}}
	for _, scale := range []time.Duration{shortest, time.Second, time.Minute} {
		m.scales = append(m.scales, c.stretch(scale))
	}
	for step := range steps {
		id := m.any()
		m.use(random.IntN(len(clients)), id)
		m.advance(id)
		m.step(id)
		if c.Failed() {
			c.Fatalf("seed %d, step %d, client %d, key %s, name %q, scale %v", seed, step, m.client, id.key, id.name, id.scale)
		}
	}
}

// use makes the next calls those of a client, in windows with the name of one.
func (m *model) use(client int, id modelID) {
	m.client, m.calls = client, m.clients[client].named(id.name)
}

// any returns one of the windows.
func (m *model) any() modelID {
	names := [...]string{"", "", "n"}
	return modelID{fmt.Sprint(m.keys, "k", m.random.IntN(3)), names[m.random.IntN(3)], m.scales[m.random.IntN(len(m.scales))]}
}

// advance advances the clock by a part of the scale, or to the end of a window.
func (m *model) advance(id modelID) {
	d := time.Duration(m.random.Int64N(int64(id.scale) / 8)).Truncate(time.Millisecond)
	switch w := m.windows[id]; {
	case m.random.IntN(20) == 0:
		d = max(0, w.end.Sub(m.Clock.Now()))
	case m.random.IntN(2) == 0:
		d /= 10
	}
	m.Clock.Advance(d)
	for id, w := range m.windows {
		if !m.Clock.Now().Before(w.end) {
			delete(m.windows, id)
		}
	}
}

// step makes a random call.
func (m *model) step(id modelID) {
	switch m.random.IntN(20) {
	case 0:
		m.added(id, m.charge(id.key, id.scale, 1), 1)
	case 1, 2, 3, 4:
		m.hitOne(id, m.random.Uint64N(12), m.random.Uint64N(4))
	case 5:
		m.opened(id, m.set(id.key, id.scale, 2), 2)
	case 6:
		m.reset(id.key, id.scale)
		delete(m.windows, id)
	case 7:
		if len(m.clients) == 1 { // one of several may not know all names
			m.deleteSome(id.key, m.scales[:1+m.random.IntN(3)])
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
		m.takeSome(ids)
	}
}

// found compares a window with that of the model.
func (m *model) found(id modelID, got window.Window) {
	if w, active := m.windows[id]; active {
		m.want(got, w.count, w.end)
	} else {
		m.none(got)
	}
}

// hitOne makes a hit.
func (m *model) hitOne(id modelID, limit, n uint64) {
	got := m.hit(id.key, id.scale, limit, n)
	if w := m.windows[id]; m.SkipsDenied && w.count > limit && got.Count == w.count {
		n = 0
	} else if m.RefusesHits && n > 0 && w.count+n > limit {
		if got.Count != w.count+n {
			m.Errorf("a hit of %d that is refused returns count %d, want %d without it", n, got.Count-n, w.count)
		}
		return
	}
	m.added(id, got, n)
}

// open returns a window of the model that opens now.
func (m *model) open(id modelID) modelWindow {
	m.serials++
	return modelWindow{end: m.end(id.scale), serial: m.serials}
}

// opened opens a window in the model and compares it with got.
func (m *model) opened(id modelID, got window.Window, count uint64) {
	w := m.open(id)
	w.count = count
	m.windows[id] = w
	m.found(id, got)
}

// added adds n to a window in the model and compares it with got.
func (m *model) added(id modelID, got window.Window, n uint64) {
	w, active := m.windows[id]
	if !active {
		m.opened(id, got, n)
		return
	}
	w.count += n
	m.windows[id] = w
	m.found(id, got)
}

// deleteSome deletes a key's windows of some scales. If these are all scales, it calls Delete
// without scales.
func (m *model) deleteSome(key string, scales []time.Duration) {
	want := 0
	for _, scale := range scales {
		for _, name := range []string{"", "n"} {
			if id := (modelID{key, name, scale}); m.windows[id].serial > 0 {
				delete(m.windows, id)
				want++
			}
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
		takes[i] = m.named(id.name).limit(id.scale, 3+m.random.Uint64N(12)).For(id.key, 1+m.random.Uint64N(4))
	}
	want := true
	merged, _ := limits.Merge(takes)
	for _, t := range merged {
		count := m.windows[modelID{t.Key, t.Limit.Name, t.Limit.Scale}].count
		want = want && t.N <= t.Limit.Max && count <= t.Limit.Max-t.N
	}
	before := m.Clock.Now()
	windows, granted := m.taken(takes)
	if granted != want {
		m.Errorf("the takes %+v return %v, want %v", takes, granted, want)
		return
	}
	for i, id := range ids {
		if granted {
			m.takeOne(id, takes[i].N, windows[i], before)
		}
	}
	if !m.Clock.Now().Equal(before) {
		return // the states are of different times
	}
	if !granted && len(m.clients) > 1 && m.SkipsDenied && (len(ids) > 1 || m.MayLose) {
		m.adopt(merged)
		return
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

// takeOne adds a take that was granted, and made after a time.
func (m *model) takeOne(id modelID, n uint64, got window.Window, before time.Time) {
	w, active := m.windows[id]
	if !active {
		w = m.open(id)
		first := w.end.Add(-m.Clock.Now().Sub(before))
		if m.Algorithm == window.AlignedWindow {
			first = limits.AlignedStart(before, id.scale).Add(id.scale)
		}
		if got.ExpiresAt.Before(w.end) && !got.ExpiresAt.Before(first) {
			w.end = got.ExpiresAt // another take of them has waited
		}
	}
	w.count += n
	m.windows[id] = w
	m.held = append(m.held, holding{id, m.client, got.ID, w.serial, n})
}

// adopt makes the model agree with what takes that were refused may leave. A client that does not know
// what the other one has taken may take first, and give back then: a window is open now, with a count of
// 0, or with more if a give-back may be lost. The states that the takes return may be what the client has
// known.
func (m *model) adopt(merged []window.Take) {
	for _, t := range merged {
		id := modelID{t.Key, t.Limit.Name, t.Limit.Scale}
		w, active := m.windows[id]
		got := m.named(id.name).get(id.key, id.scale)
		if got.Left <= 0 && !active {
			continue
		}
		if !active {
			w = m.open(id)
		}
		if m.MayLose && got.Count-w.count <= t.N {
			w.count = got.Count // what was lost stays counted
		}
		m.want(got, w.count, w.end)
		m.windows[id] = w
	}
}

// giveBackOne gives back something that is held, and maybe not all of it.
func (m *model) giveBackOne() {
	if len(m.held) == 0 {
		return
	}
	i := m.random.IntN(len(m.held))
	h := m.held[i]
	m.held[i] = m.held[len(m.held)-1]
	m.held = m.held[:len(m.held)-1]
	n := 1 + m.random.Uint64N(h.n)
	w := m.windows[h.id]
	if m.clients[h.client].named(h.id.name).giveBack(h.id.key, h.id.scale, h.windowID, n, w.serial == h.serial) {
		w.count -= n
		m.windows[h.id] = w
	}
	m.found(h.id, m.named(h.id.name).get(h.id.key, h.id.scale)) // maybe of the other client
}
