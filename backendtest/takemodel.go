package backendtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/throttr-go/throttr/window"
)

// holding is what a take in the model holds.
type holding struct {
	id       modelID
	client   int // that has made the take
	windowID int64
	serial   int // of the window in the model
	n        uint64
}

// takeModel is a model with takes, of one or two clients.
type takeModel struct {
	model
	clients []takes
	client  int // that makes the next call
	keys    string
	random  *rand.Rand
	serials map[modelID]int // of the window that was opened last
	held    []holding
}

// testTakeModel makes random takes, give-backs and other calls one after the other, and compares
// the results with those of the model.
func testTakeModel(c takes) { c.compare(c.clients()[:1], 5, 3000) }

// testTakeModelOfTwo is testTakeModel with calls of two clients: each must find what the other one has
// left.
func testTakeModelOfTwo(c takes) {
	for seed := range uint64(4) {
		c.compare(c.clients(), seed, 1500)
	}
}

// compare makes random calls of clients and compares the results with those of a model.
func (c takes) compare(clients []takes, seed uint64, steps int) {
	random := rand.New(rand.NewPCG(seed, 6))
	m := takeModel{
		model: newModel(c.calls), clients: clients, random: random, keys: fmt.Sprintf("%d/%d of ", seed, len(clients)),
		serials: map[modelID]int{},
	}
	for step := range steps {
		id := m.any()
		m.use(random.IntN(len(clients)))
		m.advance(random, id)
		m.takeStep(id)
		if c.Failed() {
			c.Fatalf("seed %d, step %d, client %d, key %s, scale %v", seed, step, m.client, id.key, id.scale)
		}
	}
}

// use makes the next calls those of a client.
func (m *takeModel) use(client int) {
	m.client, m.calls = client, m.clients[client].calls
}

func (m *takeModel) any() modelID {
	return modelID{fmt.Sprint(m.keys, "k", m.random.IntN(3)), m.scales[m.random.IntN(len(m.scales))]}
}

// takeStep makes a random call.
func (m *takeModel) takeStep(id modelID) {
	switch m.random.IntN(14) {
	case 0, 1:
		if _, active := m.windows[id]; !active {
			m.opening(id)
		}
		if m.random.IntN(2) == 0 {
			m.added(id, m.inc(id.key, id.scale, 1), 1)
		} else {
			m.hitOne(id, m.random.Uint64N(12), m.random.Uint64N(4))
		}
	case 2:
		m.opening(id)
		m.opened(id, m.set(id.key, id.scale, 2), 2)
	case 3:
		m.reset(id.key, id.scale)
		delete(m.windows, id)
	case 4, 5, 6:
		m.giveBackOne()
	case 7, 8, 9, 10:
		m.takeSome([]modelID{id})
	default:
		ids := []modelID{id}
		for range 1 + m.random.IntN(3) {
			ids = append(ids, m.any())
		}
		m.takeSome(ids)
	}
}

// opening notes that another window opens.
func (m *takeModel) opening(id modelID) {
	m.serials[id]++
}

// takeSome takes of some windows, of which one may be there more than once.
func (m *takeModel) takeSome(ids []modelID) {
	limits := make([]window.Limit, len(ids))
	for i, id := range ids {
		limits[i] = window.Limit{Key: id.key, Scale: id.scale, Limit: 3 + m.random.Uint64N(12), N: m.random.Uint64N(5)}
	}
	want := true
	for i, id := range ids {
		n, _ := window.Total(limits, i)
		want = want && n <= limits[i].Limit && m.windows[id].count <= limits[i].Limit-n
	}
	var windows []window.Window
	var granted bool
	before := m.Clock.Now()
	if len(ids) == 1 {
		windows = make([]window.Window, 1)
		windows[0], granted = m.clients[m.client].take(ids[0].key, ids[0].scale, limits[0].Limit, limits[0].N)
	} else {
		windows, granted = m.clients[m.client].takeAll(limits...)
	}
	if granted != want {
		m.Errorf("the takes %+v return %v, want %v", limits, granted, want)
		return
	}
	for i, id := range ids {
		if n := limits[i].N; granted && n > 0 {
			w, active := m.windows[id]
			if !active {
				m.opening(id)
				w.end = m.end(id.scale)
				if first := m.Algorithm.Start(before, id.scale).Add(id.scale); windows[i].ExpiresAt.Before(w.end) && !windows[i].ExpiresAt.Before(first) {
					w.end = windows[i].ExpiresAt // another take of them has waited
				}
			}
			w.count += n
			m.windows[id] = w
			m.held = append(m.held, holding{id, m.client, windows[i].ID, m.serials[id], n})
		}
	}
	if !m.Clock.Now().Equal(before) {
		return // the states are of different times
	}
	if !granted && len(m.clients) > 1 && m.SkipsDenied && (len(ids) > 1 || m.MayLose) {
		m.adopt(limits)
		return
	}
	for i, id := range ids {
		if w, active := m.windows[id]; active {
			m.want(windows[i], w.count, w.end)
		} else {
			m.none(windows[i])
		}
	}
}

// adopt makes the model agree with what takes that were refused may leave. A client that does not know
// what the other one has taken may take first, and give back then: a window is open now, with a count of
// 0, or with more if a give-back may be lost. The states that the takes return may be what the client has
// known.
func (m *takeModel) adopt(limits []window.Limit) {
	for i, l := range limits {
		id := modelID{l.Key, l.Scale}
		w, active := m.windows[id]
		got := m.get(id.key, id.scale)
		if got.Left <= 0 && !active {
			continue
		}
		if !active {
			m.opening(id)
			w.end = m.end(id.scale)
		}
		if n, _ := window.Total(limits, i); m.MayLose && got.Count-w.count <= n {
			w.count = got.Count // what was lost stays counted
		}
		m.want(got, w.count, w.end)
		m.windows[id] = w
	}
}

// giveBackOne gives back something that is held, and maybe not all of it.
func (m *takeModel) giveBackOne() {
	if len(m.held) == 0 {
		return
	}
	i := m.random.IntN(len(m.held))
	h := m.held[i]
	m.held[i] = m.held[len(m.held)-1]
	m.held = m.held[:len(m.held)-1]
	n := 1 + m.random.Uint64N(h.n)
	w, active := m.windows[h.id]
	open := active && m.serials[h.id] == h.serial
	if m.clients[h.client].giveBack(h.id.key, h.id.scale, h.windowID, n, open) {
		w.count -= n
		m.windows[h.id] = w
	}
	got := m.get(h.id.key, h.id.scale) // maybe of the other client
	if !active {
		m.none(got)
		return
	}
	m.want(got, w.count, w.end)
}
