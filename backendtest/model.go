package backendtest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// modelWindow is what the model keeps of a window.
type modelWindow struct {
	end   time.Time
	count uint64
	full  bool // a hit has been denied: the backend may count less from here on
}

// testModel makes random calls one after the other, with time passing in between, and
// compares with a window kept in the plainest way.
func testModel(t *testing.T, s Subject) {
	c := calls{t, s}
	random := rand.New(rand.NewPCG(3, 4))
	windows := map[string]*modelWindow{}
	scales := []time.Duration{100 * time.Millisecond, time.Second, time.Minute}
	for step := range 3000 {
		key, scale := fmt.Sprint("k", random.IntN(3)), scales[random.IntN(len(scales))]
		name := fmt.Sprint(key, scale)
		c.Clock.Advance(time.Duration(random.Int64N(int64(scale)/8)).Truncate(time.Millisecond) / time.Duration(1+9*random.IntN(2)))
		m := windows[name]
		if m != nil && !c.Clock.Now().Before(m.end) {
			m = nil
		}
		if m == nil {
			m = &modelWindow{}
		}
		fresh := m.end.IsZero()
		windows[name] = m
		n := random.Uint64N(4)
		switch op := random.IntN(12); {
		case op == 0:
			c.reset(key, scale)
			delete(windows, name)
			continue
		case op == 1:
			*m = modelWindow{end: c.end(scale), count: n}
			c.want(c.set(key, scale, n), n, m.end)
		case op < 4:
			w := c.get(key, scale)
			if fresh {
				c.none(w)
				delete(windows, name)
				continue
			}
			m.agree(c, w.Count)
			c.want(w, m.count, m.end)
		default:
			if fresh {
				*m = modelWindow{end: c.end(scale)}
			}
			limit := random.Uint64N(12)
			w := c.hit(key, scale, limit, n)
			m.count += n
			m.agree(c, w.Count)
			c.want(w, m.count, m.end)
			m.full = m.full || w.Count > limit
		}
		if t.Failed() {
			t.Fatalf("step %d, key %s, scale %v", step, key, scale)
		}
	}
}

// agree takes over a count that is lower than the model's, where it may be.
func (m *modelWindow) agree(c calls, count uint64) {
	if m.full && c.SkipsDenied && count < m.count {
		m.count = count
	}
}
