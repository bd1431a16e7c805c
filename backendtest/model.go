package backendtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

var modelScales = []time.Duration{shortest, time.Second, time.Minute}

// modelID identifies a window of the model.
type modelID struct {
	key   string
	scale time.Duration
}

// modelWindow is a window in the model.
type modelWindow struct {
	count uint64
	end   time.Time
}

// model is the simplest implementation of a backend.
type model struct {
	calls
	scales  []time.Duration
	windows map[modelID]modelWindow
}

// newModel returns a model without windows.
func newModel(c calls) model {
	m := model{calls: c, windows: map[modelID]modelWindow{}}
	for _, scale := range modelScales {
		m.scales = append(m.scales, c.stretch(scale))
	}
	return m
}

// testModel makes random calls one after the other, advances the clock in between, and compares
// the results with those of the model.
func testModel(t *testing.T, s Subject) {
	m := newModel(calls{t, s})
	random := rand.New(rand.NewPCG(3, 4))
	for step := range 3000 {
		id := modelID{fmt.Sprint("k", random.IntN(3)), m.scales[random.IntN(len(m.scales))]}
		m.advance(random, id)
		m.step(random, id)
		if t.Failed() {
			t.Fatalf("step %d, key %s, scale %v", step, id.key, id.scale)
		}
	}
}

// advance advances the clock by a part of the scale, or to the end of a window.
func (m model) advance(random *rand.Rand, id modelID) {
	d := time.Duration(random.Int64N(int64(id.scale) / 8)).Truncate(time.Millisecond)
	switch w := m.windows[id]; {
	case random.IntN(20) == 0:
		d = max(0, w.end.Sub(m.Clock.Now()))
	case random.IntN(2) == 0:
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
func (m model) step(random *rand.Rand, id modelID) {
	n, limit := random.Uint64N(4), random.Uint64N(12)
	switch random.IntN(16) {
	case 0:
		m.reset(id.key, id.scale)
		delete(m.windows, id)
	case 1:
		m.opened(id, m.set(id.key, id.scale, n), n)
	case 2:
		m.deleteSome(id.key, m.scales[:1+random.IntN(3)])
	case 3, 4, 5:
		if w, active := m.windows[id]; active {
			m.want(m.get(id.key, id.scale), w.count, w.end)
		} else {
			m.none(m.get(id.key, id.scale))
		}
	case 6, 7:
		m.added(id, m.inc(id.key, id.scale, n), n)
	default:
		m.hitOne(id, limit, n)
	}
}

// hitOne makes a hit.
func (m model) hitOne(id modelID, limit, n uint64) {
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

// opened opens a window in the model and compares it with got.
func (m model) opened(id modelID, got window.Window, count uint64) {
	m.windows[id] = modelWindow{count, m.end(id.scale)}
	m.want(got, count, m.windows[id].end)
}

// added adds n to a window in the model and compares it with got.
func (m model) added(id modelID, got window.Window, n uint64) {
	w, active := m.windows[id]
	if !active {
		m.opened(id, got, n)
		return
	}
	w.count += n
	m.windows[id] = w
	m.want(got, w.count, w.end)
}

// deleteSome deletes a key's windows of some scales. If these are all scales, it calls Delete
// without scales.
func (m model) deleteSome(key string, scales []time.Duration) {
	want := 0
	for _, scale := range scales {
		if _, active := m.windows[modelID{key, scale}]; active {
			delete(m.windows, modelID{key, scale})
			want++
		}
	}
	if len(scales) == len(m.scales) {
		scales = nil
	}
	if got := m.delete(key, scales...); got != want {
		m.Errorf("Delete(%q, %v) returns %d, want %d", key, scales, got, want)
	}
}
