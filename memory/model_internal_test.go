package memory

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// model is a simple implementation of a backend with room for every key. Each call is made to
// both, and their results must be equal.
type model struct {
	*testing.T
	backend   *Backend
	random    *rand.Rand
	algorithm window.Algorithm
	olderThan time.Duration
	windows   map[name]*window.Window // including those that are over
	cleanings int                     // cleanings that are running
	between   int                     // calls made between the steps of cleanings
	steps     int                     // steps of cleanings that removed a window
}

type name struct {
	key   string
	name  string
	scale time.Duration
}

func newModel(t *testing.T, a window.Algorithm, olderThan time.Duration) *model {
	random := rand.New(rand.NewPCG(1, uint64(olderThan)))
	m := &model{T: t, algorithm: a, olderThan: olderThan, random: random, windows: map[name]*window.Window{}}
	m.backend = New(WithKeyOlderThan(olderThan), WithMaxKeys(4095), WithBeforeDrop(m.dropped))
	m.backend.cleaner.Stop() // the model cleans
	return m
}

// any returns the name of one of 2760 windows. Their keys have all lengths.
func (m *model) any() name {
	k := name{strings.Repeat("k", m.random.IntN(maxKey+10)), []string{"", "login"}[m.random.IntN(2)], time.Duration(1+m.random.IntN(5)) * 900 * time.Millisecond}
	if m.random.IntN(2) == 0 {
		k.key += "!"
	}
	return k
}

// limit returns the limit of a window.
func (m *model) limit(k name, limit uint64) window.Limit {
	return window.Limit{Name: k.name, Max: limit, Scale: k.scale, Algorithm: m.algorithm}
}

// active returns the active window, nil if there is none. If open is true, it opens one.
func (m *model) active(k name, open bool) *window.Window {
	w := m.windows[k]
	if w != nil && time.Now().Before(w.ExpiresAt) {
		return w
	}
	if !open {
		return nil
	}
	start := time.Now()
	if m.algorithm == window.AlignedWindow {
		start = limits.AlignedStart(start, k.scale)
	}
	w = &window.Window{ExpiresAt: start.Add(k.scale)}
	m.windows[k] = w
	return w
}

// call makes a random call, or lets time pass.
func (m *model) call() {
	k, b, ctx := m.any(), m.backend, context.Background()
	increment, limit := m.random.Uint64N(3), m.random.Uint64N(10)
	switch m.random.IntN(20) {
	case 0:
		got, err := b.Peek(ctx, k.key, m.limit(k, 10), 0)
		require.NoError(m, err)
		m.same(m.active(k, false), got)
	case 1:
		delete(m.windows, k)
		w := m.active(k, true)
		w.Count = increment
		got, err := b.Set(ctx, k.key, m.limit(k, 10), increment)
		require.NoError(m, err)
		m.same(w, got)
	case 2:
		m.reset(k)
	case 3:
		m.delete(k.key, k.scale*time.Duration(m.random.IntN(2)))
	case 4:
		if m.cleanings < 2 && m.random.IntN(20) == 0 {
			m.clean()
		}
	case 5:
		time.Sleep(time.Duration(m.random.ExpFloat64() * float64(50*time.Millisecond)))
	case 6, 7:
		w := m.active(k, true)
		w.Count += increment
		got, err := b.Charge(ctx, k.key, m.limit(k, 10), increment)
		require.NoError(m, err)
		m.same(w, got)
	default:
		w := m.active(k, true)
		w.Count += increment
		got, err := Decide(b, ctx, true, k.key, m.limit(k, limit), increment)
		require.NoError(m, err)
		require.Equal(m, w.Count, got.Count)
		require.True(m, w.ExpiresAt.Equal(got.ExpiresAt))
		require.Equal(m, w.Count > limit, got.Refused)
		if got.Refused {
			require.Equal(m, got.Left, got.RetryAfter)
			require.Equal(m, time.Until(w.ExpiresAt), got.Left, "the time is exact if the hit is denied")
		} else {
			require.InDelta(m, time.Until(w.ExpiresAt), got.Left, float64(coarseTick))
		}
	}
}

// same compares the states of a window.
func (m *model) same(want *window.Window, got window.Window) {
	m.Helper()
	if want == nil {
		require.Zero(m, got)
		return
	}
	require.Equal(m, want.Count, got.Count)
	require.True(m, want.ExpiresAt.Equal(got.ExpiresAt))
	require.Equal(m, time.Until(want.ExpiresAt), got.Left)
}

// delete ends the windows of a key and scale, or of all scales if that is 0.
func (m *model) delete(key string, scale time.Duration) {
	want := 0
	for k := range m.windows {
		if k.key == key && (scale == 0 || k.scale == scale) {
			if m.active(k, false) != nil {
				want++
			}
			delete(m.windows, k)
		}
	}
	var scales []time.Duration
	if scale > 0 {
		scales = append(scales, scale)
	}
	n, err := m.backend.Delete(context.Background(), key, scales...)
	require.NoError(m, err)
	require.Equal(m, want, n)
}

// reset ends a window.
func (m *model) reset(k name) {
	delete(m.windows, k)
	require.NoError(m, m.backend.Reset(context.Background(), k.key, m.limit(k, 10)))
}

// clean makes the backend remove windows that are over: at least those that are over at its start.
func (m *model) clean() {
	m.cleanings++
	begun := time.Now()
	m.backend.Clean()
	m.cleanings--
	for k, w := range m.windows {
		require.False(m, !w.ExpiresAt.After(begun) && begun.Sub(w.ExpiresAt) >= m.olderThan, "%v was not removed", k)
	}
	require.Equal(m, len(m.windows), m.backend.Len())
}

// dropped is the BeforeDrop of the backend. It makes calls, as others would between steps.
func (m *model) dropped(windows []Dropped) {
	require.LessOrEqual(m, len(windows), cleanStep)
	now := time.Now()
	for _, d := range windows {
		k := name{d.Key, d.Limit.Name, d.Limit.Scale}
		require.Equal(m, m.algorithm, d.Limit.Algorithm)
		if len(d.Key) == 32 && strings.Trim(d.Key, "k!") != "" { // the hash of a long key
			k = m.long(d)
		}
		w := m.windows[k]
		require.NotNil(m, w, "%v was dropped twice", k)
		require.GreaterOrEqual(m, now.Sub(w.ExpiresAt), m.olderThan)
		m.same(w, d.Window)
		delete(m.windows, k)
	}
	m.steps++
	for range m.random.IntN(60) {
		m.call()
		m.between++
	}
}

// long returns the name of a dropped window whose Key is a hash.
func (m *model) long(d Dropped) name {
	for k := range m.windows {
		if _, id := locate(m.backend, k.key, m.limit(k, 10)); id.key == d.Key && id.scale == d.Limit.Scale && k.name == d.Limit.Name {
			return k
		}
	}
	m.Fatalf("%q was dropped twice, or never existed", d.Key)
	return name{}
}

// Random calls, also between the steps of cleanings, return what a map of windows returns.
func TestBackendAgreesWithAMap(t *testing.T) {
	for _, a := range []window.Algorithm{window.FixedWindow, window.AlignedWindow} {
		for _, olderThan := range []time.Duration{0, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, a, olderThan)
				defer m.backend.Close()
				for range 15 {
					for range 400 {
						m.call()
					}
					m.clean()
				}
				require.Greater(t, m.steps, 50)
				require.Greater(t, m.between, 1500)
			})
		}
	}
}
