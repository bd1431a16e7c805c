package backendtest

import (
	"fmt"
	"math/rand/v2"

	"github.com/throttr-go/throttr/window"
)

// holding is what a take in the model holds.
type holding struct {
	id       modelID
	windowID int64
	serial   int // of the window in the model
	n        uint64
}

// takeModel is a model with takes.
type takeModel struct {
	model
	takes   takes
	random  *rand.Rand
	serials map[modelID]int // of the window that was opened last
	held    []holding
}

// testTakeModel makes random takes, give-backs and other calls one after the other, and compares
// the results with those of the model.
func testTakeModel(c takes) {
	random := rand.New(rand.NewPCG(5, 6))
	m := takeModel{
		model: newModel(c.calls), takes: c, random: random,
		serials: map[modelID]int{},
	}
	for step := range 3000 {
		id := m.any()
		m.advance(random, id)
		m.takeStep(id)
		if c.Failed() {
			c.Fatalf("step %d, key %s, scale %v", step, id.key, id.scale)
		}
	}
}

func (m *takeModel) any() modelID {
	return modelID{fmt.Sprint("k", m.random.IntN(3)), m.scales[m.random.IntN(len(m.scales))]}
}

// takeStep makes a random call.
func (m *takeModel) takeStep(id modelID) {
	switch m.random.IntN(12) {
	case 0:
		_, active := m.windows[id]
		if !active {
			m.opening(id)
		}
		m.added(id, m.inc(id.key, id.scale, 1), 1)
	case 1:
		m.opening(id)
		m.opened(id, m.set(id.key, id.scale, 2), 2)
	case 2:
		m.reset(id.key, id.scale)
		delete(m.windows, id)
	case 3, 4, 5:
		m.giveBackOne()
	case 6, 7, 8:
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
		windows[0], granted = m.takes.take(ids[0].key, ids[0].scale, limits[0].Limit, limits[0].N)
	} else {
		windows, granted = m.takes.takeAll(limits...)
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
			m.held = append(m.held, holding{id, windows[i].ID, m.serials[id], n})
		}
	}
	if !m.Clock.Now().Equal(before) {
		return // the states are of different times
	}
	for i, id := range ids {
		if w, active := m.windows[id]; active {
			m.want(windows[i], w.count, w.end)
		} else {
			m.none(windows[i])
		}
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
	if m.takes.giveBack(h.id.key, h.id.scale, h.windowID, n, open) {
		w.count -= n
		m.windows[h.id] = w
	}
	got := m.get(h.id.key, h.id.scale)
	if !active {
		m.none(got)
		return
	}
	m.want(got, w.count, w.end)
}
