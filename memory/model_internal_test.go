package memory

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// model is what a backend with room for every key does, put plainly. Each call goes to both,
// and what the backend says of it must be what the model says.
type model struct {
	*testing.T
	backend   *Backend
	random    *rand.Rand
	algorithm window.Algorithm
	olderThan time.Duration
	windows   map[name]*window.Window // those that are over included
	cleanings int                     // that are under way
	between   int                     // calls between the steps of cleanings
	steps     int                     // of cleanings, after which a window was shown
}

type name struct {
	key   string
	scale time.Duration
}

func newModel(t *testing.T, a window.Algorithm, olderThan time.Duration) *model {
	random := rand.New(rand.NewPCG(1, uint64(olderThan)))
	m := &model{T: t, algorithm: a, olderThan: olderThan, random: random, windows: map[name]*window.Window{}}
	m.backend = New(WithAlgorithm(a), WithKeyOlderThan(olderThan), WithCleanPeriod(0), WithMaxKeys(2047), WithBeforeDrop(m.dropped))
	return m
}

// any returns the name of one of 1380 windows. The keys are of all lengths.
func (m *model) any() name {
	k := name{strings.Repeat("k", m.random.IntN(maxKey+10)), time.Duration(1+m.random.IntN(5)) * 900 * time.Millisecond}
	if m.random.IntN(2) == 0 {
		k.key += "!"
	}
	return k
}

// active returns a window if it is active, and opens it if that is wanted.
func (m *model) active(k name, open bool) *window.Window {
	w := m.windows[k]
	if w != nil && time.Now().Before(w.ExpiresAt) {
		return w
	}
	if !open {
		return nil
	}
	start := m.algorithm.Start(time.Now(), k.scale)
	w = &window.Window{StartedAt: start, ExpiresAt: start.Add(k.scale)}
	m.windows[k] = w
	return w
}

// call makes one of the calls that there are, or lets time pass.
func (m *model) call() {
	k, b, ctx := m.any(), m.backend, context.Background()
	increment, limit := m.random.Uint64N(3), m.random.Uint64N(10)
	switch m.random.IntN(20) {
	case 0:
		got, err := b.Get(ctx, k.key, k.scale)
		require.NoError(m, err)
		m.same(m.active(k, false), got)
	case 1:
		delete(m.windows, k)
		w := m.active(k, true)
		w.Count, w.UpdatedAt = increment, time.Now()
		got, err := b.Set(ctx, k.key, k.scale, increment)
		require.NoError(m, err)
		m.same(w, got)
	case 2:
		m.delete(k)
	case 3:
		m.deleteAll(k.key)
	case 4:
		if m.cleanings < 2 && m.random.IntN(20) == 0 {
			m.clean()
		}
	case 5:
		<-time.After(time.Duration(m.random.ExpFloat64() * float64(50*time.Millisecond)))
	case 6, 7:
		w := m.active(k, true)
		w.Count, w.UpdatedAt = w.Count+increment, time.Now()
		got, err := b.Inc(ctx, k.key, k.scale, increment)
		require.NoError(m, err)
		m.same(w, got)
	default:
		w := m.active(k, true)
		w.Count, w.UpdatedAt = w.Count+increment, time.Now()
		n, passed, left, end, err := (*counter)(b).Count(ctx, k.key, k.scale, limit, increment)
		require.NoError(m, err)
		require.Equal(m, w.Count, n)
		require.True(m, w.ExpiresAt.Equal(end))
		require.Equal(m, k.scale, passed+left)
		if n > limit {
			require.Equal(m, time.Until(w.ExpiresAt), left, "whoever is denied is told to the nanosecond")
		} else {
			require.InDelta(m, time.Until(w.ExpiresAt), left, float64(beat))
		}
	}
}

// same compares what there is to know of a window. When it was last added to is known to a
// beat.
func (m *model) same(want *window.Window, got window.Window) {
	m.Helper()
	if want == nil {
		require.Zero(m, got)
		return
	}
	require.Equal(m, want.Count, got.Count)
	require.True(m, want.StartedAt.Equal(got.StartedAt))
	require.True(m, want.ExpiresAt.Equal(got.ExpiresAt))
	require.Equal(m, time.Until(want.ExpiresAt), got.Left)
	require.LessOrEqual(m, want.UpdatedAt.Sub(got.UpdatedAt).Abs(), beat)
}

func (m *model) delete(k name) {
	want := 0
	if m.active(k, false) != nil {
		want = 1
	}
	delete(m.windows, k)
	n, err := m.backend.Delete(context.Background(), k.key, k.scale)
	require.NoError(m, err)
	require.Equal(m, want, n)
}

func (m *model) deleteAll(key string) {
	want := 0
	for k := range m.windows {
		if k.key == key {
			if m.active(k, false) != nil {
				want++
			}
			delete(m.windows, k)
		}
	}
	n, err := m.backend.Delete(context.Background(), key)
	require.NoError(m, err)
	require.Equal(m, want, n)
}

// clean has the backend remove what is over. What was when it began is gone then.
func (m *model) clean() {
	m.cleanings++
	begun := time.Now()
	m.backend.Clean()
	m.cleanings--
	for k, w := range m.windows {
		require.False(m, !w.ExpiresAt.After(begun) && begun.Sub(w.ExpiresAt) >= m.olderThan, "%v has been passed by", k)
	}
	require.Equal(m, len(m.windows), m.backend.Len())
}

// dropped is shown what a cleaning removes. Before it goes on, others make calls.
func (m *model) dropped(windows []Dropped) {
	require.LessOrEqual(m, len(windows), cleanStep)
	now := time.Now()
	for _, d := range windows {
		k := name{d.Key, d.Scale}
		if len(d.Key) == 32 && strings.Trim(d.Key, "k!") != "" { // the hash of a long one
			k = m.long(d)
		}
		w := m.windows[k]
		require.NotNil(m, w, "%v is shown twice", k)
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

// long returns the name of a window that is shown by a hash of its key.
func (m *model) long(d Dropped) name {
	for k := range m.windows {
		if _, id := m.backend.locate(k.key, k.scale); id.key == d.Key && id.scale == d.Scale {
			return k
		}
	}
	m.Fatalf("%q is shown twice, or was never there", d.Key)
	return name{}
}

// Whatever calls come, in whatever order, and between the steps of cleanings, too, the
// backend says what a map would.
func TestABackendIsAMap(t *testing.T) {
	for _, a := range []window.Algorithm{window.PerKey, window.Aligned} {
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
