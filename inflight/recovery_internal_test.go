package inflight

import (
	"slices"

	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// until runs the model until a want is held, or the time is over.
func (m *model) until(w *want, end time.Duration) {
	for len(m.events) > 0 && m.now < end && (w == nil || w.state != held) {
		m.step()
	}
}

// acquire makes a process want places, and returns the want.
func (m *model) acquire(n *node, places uint64) *want {
	w := &want{Want: window.Want{N: places, Max: modelMax, Wait: true}}
	m.on(n, func() { n.pump.add(w) })
	return w
}

// All processes but one crash, with what they hold and want. That one gets all places within 1.2 leases.
func TestModelRecoversFromCrashes(t *testing.T) {
	var slowest time.Duration
	crashed := 0
	for seed := range uint64(*modelRuns) {
		m := newModel(seed, all, faults{})
		m.until(nil, modelLease+m.duration(3*modelLease))
		m.calm = true // no process wants anything but what follows
		left := m.nodes[0]
		for _, w := range left.waits {
			m.on(left, func() { left.pump.cancel(w) })
		}
		for _, n := range m.nodes[1:] {
			n.dead = true
			crashed += int(n.pump.held)
		}
		crash := m.now
		w := m.acquire(left, modelMax)
		m.until(w, crash+2*modelLease)
		require.Equal(t, held, w.state, "seed %d", seed)
		slowest = max(slowest, m.now-crash)
	}
	require.Greater(t, crashed, *modelRuns, "places are held by those that crash")
	t.Logf("%d places of processes that crashed are back after %.2f leases at most", crashed, float64(slowest)/float64(modelLease))
	require.LessOrEqual(t, slowest, modelLease*6/5)
}

// A process wants all places, while each other one holds some and always wants more of one place each. Until it gets
// them, others get as many wants as have waited twice at most.
func TestModelServesLargeWantsWithinTwoRounds(t *testing.T) {
	others, slowest := 0, 0.0
	for seed := range uint64(*modelRuns / 4) {
		m := newModel(seed, all, faults{})
		m.calm = true // no process wants anything but what follows
		var again func(n *node)
		again = func(n *node) {
			w := m.acquire(n, 1)
			m.after(m.duration(modelLease/4), func() { m.replace(n, w, again) })
		}
		for _, n := range m.nodes[1:] {
			for range modelMax + m.IntN(4) {
				again(n)
			}
		}
		m.until(nil, modelLease+m.duration(modelLease))
		large := m.nodes[0]
		w := m.acquire(large, modelMax)
		for !slices.Contains(large.asked, w) {
			m.step()
		}
		granted := func() (n int) {
			for _, node := range m.nodes[1:] {
				n += node.granted
			}
			return n
		}
		inLine, before := m.ledger.Exchange(&window.Claim{Key: "k"}).Waiting, granted()
		m.until(w, m.now+20*modelLease)
		require.Equal(t, held, w.state, "seed %d", seed)
		slowest = max(slowest, float64(granted()-before)/float64(max(inLine, 1)))
		others += granted() - before
	}
	require.Greater(t, others, *modelRuns/4, "others are in line")
	t.Logf("large wants are served after %.2f rounds at most", slowest)
	require.LessOrEqual(t, slowest, 2.0)
}

// replace gives a place back when it is held, and wants another.
func (m *model) replace(n *node, w *want, again func(*node)) {
	if w.state == waiting {
		m.after(m.duration(modelLease/16), func() { m.replace(n, w, again) })
		return
	}
	m.on(n, func() { n.pump.cancel(w) })
	again(n)
}
