package inflight

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/ledger"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// leased returns a pump for places with a lease.
func leased(lease time.Duration, o options, changed func(*Hold)) *pump {
	p := &pump{callers: callers{options: &o, changed: changed, holds: map[*Hold]struct{}{}}}
	p.open("k", "", lease)
	return p
}

// adds adds a want to a pump.
func (p *pump) adds(n, most uint64, wait bool) *Hold {
	w := &Hold{want: window.Want{N: n, Max: most, Wait: wait}}
	p.add(w)
	return w
}

// exchange makes an exchange within a millisecond, and returns the claim. The process does something meanwhile.
func (p *pump) exchange(now time.Duration, a window.Places, meanwhile ...func()) *window.Claim {
	c := p.begin(now, 1)
	for _, f := range meanwhile {
		f()
	}
	p.answered(now+time.Millisecond, &a)
	return c
}

// An answer that arrives after the time of what was held is over does not bring it back, although the store has
// renewed it: the holder may have seen that it is not valid. One that arrives a lease late grants nothing, and the store,
// which may have granted it just now, is told. What a strict store has no room for is lost.
func TestWhatIsLostStaysLost(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	w := p.adds(1, 1, false)
	p.exchange(0, window.Places{Tokens: []uint64{7}, Used: 1})
	require.Equal(t, held, w.state)
	end := p.loseAt()
	require.Less(t, end, time.Second)

	p.begin(900*time.Millisecond, 1)
	p.answered(end, &window.Places{Used: 1})
	require.Equal(t, lost, w.state)
	require.Zero(t, p.due(), "the store is told")
	late := p.adds(1, 1, false)
	require.Zero(t, p.begin(end, 1).Held)
	p.answered(end+time.Second, &window.Places{Tokens: []uint64{8}, Used: 1})
	require.Equal(t, refused, late.state)
	require.False(t, p.idle(end+time.Second))

	for _, end := range []func(){
		func() { p.answered(time.Second/2+1, &window.Places{Lost: true}) },
		func() { p.failed(time.Second, errLate, failing) }, // a policy keeps only what is held
	} {
		p = leased(time.Second, options{policy: Share}, func(*Hold) {})
		w = p.adds(1, 1, false)
		p.exchange(0, window.Places{Tokens: []uint64{7}, Used: 1})
		p.begin(time.Second/2, 1)
		end()
		require.Equal(t, lost, w.state)
	}
}

// Whoever waits behind others needs no exchange.
func TestWantsBehindOneThatWaitsAskNobody(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	first := p.adds(1, 1, true)
	p.exchange(0, window.Places{Used: 1, Waiting: 1})
	require.Equal(t, time.Millisecond+time.Second/8, p.due(), "it asks again")
	p.adds(1, 1, true)
	require.Equal(t, refused, p.adds(1, 1, false).state)
	require.Equal(t, time.Millisecond+time.Second/8, p.due())
	p.cancel(first)
	require.Zero(t, p.due(), "the store keeps room for the first in line")
	var late *Hold
	p.exchange(0, window.Places{Used: 1, Waiting: 1}, func() { late = p.adds(1, 1, false) })
	require.Equal(t, refused, late.state, "the other one is in line now")
}

// A want that is given up during its exchange does not keep others from asking. The store is told that it keeps a
// position in line, or a place, for nobody.
func TestAWantThatIsGivenUpDuringItsExchangeBlocksNobody(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	first := p.adds(2, 2, true)
	var second *Hold
	p.exchange(0, window.Places{Used: 1, Waiting: 1}, func() {
		p.cancel(first)
		second = p.adds(1, 2, false)
	})
	require.Equal(t, waiting, second.state)
	require.Zero(t, p.due())
	require.Equal(t, []window.Want{{N: 1, Max: 2}}, p.exchange(time.Millisecond, window.Places{Tokens: []uint64{7}, Used: 2}).Wants)
	require.Equal(t, held, second.state)

	for _, answer := range []window.Places{{Used: 1, Waiting: 1}, {Tokens: []uint64{7}, Used: 1}} {
		p = leased(time.Second, options{}, func(*Hold) {})
		w := p.adds(1, 1, true)
		p.exchange(0, answer, func() { p.cancel(w) })
		require.Equal(t, released, w.state)
		require.False(t, p.idle(time.Millisecond))
		require.Zero(t, p.due(), "at once, and not after a lease")
		require.Equal(t, &window.Claim{Key: "k", Seq: 1, Lease: time.Second, Wants: []window.Want{}}, p.begin(time.Millisecond, 1))
	}

	p = leased(time.Second, options{}, func(*Hold) {})
	one, two := p.adds(1, 2, false), p.adds(1, 3, false)
	p.exchange(0, window.Places{Tokens: []uint64{7, 8}, Used: 2})
	c := p.exchange(time.Millisecond, window.Places{Used: 2}, func() { p.cancel(one) })
	require.Equal(t, []uint64{2, 3}, []uint64{c.Held, c.HeldMax}, "the largest Max, under which they must fit if they are forgotten")
	require.Zero(t, p.due(), "what is released during an exchange is free at once, although more is held")
	require.EqualValues(t, 3, p.exchange(2*time.Millisecond, window.Places{Used: 1}).HeldMax)
	p.cancel(two)
	require.Zero(t, p.begin(3*time.Millisecond, 1).HeldMax)
}

// Those who have gone are not kept in memory by a pump that goes on, with the values of their ctx.
func TestAPumpKeepsNobodyWhoHasGone(t *testing.T) {
	for name, end := range map[string]func(p *pump){
		"answered": func(p *pump) { p.answered(time.Millisecond, &window.Places{Used: 1, Waiting: 1}) },
		"failed":   func(p *pump) { p.failed(time.Millisecond, errLate, failing) },
	} {
		p := leased(time.Second, options{}, func(*Hold) {})
		var gone []weak.Pointer[Hold]
		for range 9 {
			gone = append(gone, weak.Make(p.adds(1, 1, true)))
		}
		p.begin(0, 1)
		end(p)
		for _, w := range gone {
			p.cancel(w.Value())
		}
		runtime.GC()
		for _, w := range gone {
			require.Nil(t, w.Value(), name)
		}
		runtime.KeepAlive(p)
	}
}

// The pause between exchanges that fail is as long as they have failed, up to a bound.
func TestThePauseAfterFailuresGrows(t *testing.T) {
	for lease, pauses := range map[time.Duration][]time.Duration{
		time.Minute:            {10, 10, 20, 40, 80, 160, 250, 250},
		160 * time.Millisecond: {10, 10, 20, 20},
	} {
		p := leased(lease, options{}, func(*Hold) {})
		now := time.Second
		fail := func(pause time.Duration) {
			p.begin(now, 1)
			p.failed(now, errLate, failing)
			require.Equal(t, now+pause*time.Millisecond, p.due())
		}
		p.adds(1, 1, true)
		for _, pause := range pauses {
			fail(pause)
			now = p.due()
		}
		p.exchange(now, window.Places{Used: 1})
		fail(10)
		p.adds(1, 2, false)
		require.Zero(t, p.due(), "whoever has just come knows of no failure")
		p.exchange(now, window.Places{Tokens: []uint64{0, 7}, Used: 1})
		fail(10)
		p.begin(now, 1)
		p.failed(now, window.ErrRange, mistaken)
		require.Equal(t, now+share(lease, renewShare), p.due(), "what is held is renewed")
		now += lease / 8
		fail(10) // a store that answers is there
	}
}

// After a failure, the next exchange says all again in its time: no place in line is known any more, and the store may
// have granted what was asked.
func TestAFailureLeavesNothingKnown(t *testing.T) {
	p := leased(time.Second, options{}, func(*Hold) {})
	const now = 10 * time.Second
	first := p.adds(1, 1, true)
	p.exchange(now, window.Places{Used: 1, Waiting: 1, Next: 5 * time.Millisecond})
	require.Equal(t, now+6*time.Millisecond, p.due(), "when a lease ends")
	p.begin(now, 1)
	p.failed(now, errLate, failing)
	p.again()
	require.Equal(t, now+minPause, p.due())
	second := p.adds(1, 1, false)
	require.Equal(t, waiting, second.state)
	p.begin(now, 1)
	p.failed(now, errLate, away)
	require.Equal(t, []state{refused, refused}, []state{first.state, second.state})
	require.False(t, p.idle(now))
	require.True(t, p.idle(now+time.Second))
	p.begin(now, 1)
	p.answered(now+time.Second/2, &window.Places{})
	require.False(t, p.idle(now+time.Second/2), "the claim that has failed may have come after this one")
	p.exchange(now+time.Second/2, window.Places{})
	require.True(t, p.idle(now+time.Second/2))
	p.open("another key", "", time.Second)
	require.Equal(t, exchanges{claim: p.claim, asked: p.asked, nextAt: never}, p.exchanges)
}

// An observer that panics harms nobody but whoever has called it: others are told that their places have ended, the
// store gets all that is given back, and nobody holds what was not returned.
func TestAnObserverThatPanicsHarmsNobodyElse(t *testing.T) {
	for _, wrapped := range []bool{false, true} { // in memory, and in exchanges
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			defer b.Close()
			var backend window.Backend = b
			if wrapped {
				backend = struct{ window.Backend }{b}
			}
			told := 0
			l := New(backend, WithObserver(func(_ context.Context, e Event) {
				if e.Kind == Released || e.Kind == Lost {
					told++
					panic("a mistake")
				}
			}))
			limit := Limit{Max: 3, Lease: time.Minute}
			var ctxs []context.Context
			acquire := func(key string) *Hold {
				h, _, err := l.TryAcquire(t.Context(), key, limit, 1)
				require.NoError(t, err)
				ctxs = append(ctxs, h.Context())
				return h
			}
			for _, key := range []string{"a", "a", "b", "b"} {
				acquire(key)
			}
			require.Panics(t, acquire("a").Release)
			if wrapped {
				l.mu.Lock()
				l.byID[id{"b", ""}].leasedUntil = 0 // as if the process had stood still, which the next call notices
				l.mu.Unlock()
				require.Panics(t, func() { acquire("b") })
				synctest.Wait()
				require.Equal(t, Stats{InUse: 2, Keys: 1, Lost: 2}, l.Stats())
			}
			require.Panics(t, func() { l.Close() })
			for _, ctx := range ctxs {
				require.Error(t, ctx.Err())
			}
			require.Equal(t, 5, told)
			require.Empty(t, l.byID)
			synctest.Wait()
			require.Empty(t, l.queues, "leases may be as many as calls")
			for range b.ListPlaces(t.Context()) {
				t.Error("places are held by nobody")
			}
		})
	}
}

// The model runs pumps and a ledger, as they are, on a virtual clock. Around them, processes crash and stand still,
// messages are late, lost, or arrive in another order, clocks go wrong within what is allowed for, and the store loses
// its data. All of it is drawn from a seed.

// faults are what happens in a run.
type faults struct {
	crashes, stops, restarts, losses bool
	outages                          bool          // for up to two leases, no message arrives
	late                             time.Duration // how long messages take at most, rarely
	loose                            bool          // claims are not strict
	policy                           Policy
}

const (
	modelLease   = time.Second
	modelTimeout = modelLease / 8 // of an exchange
	modelMax     = 4
)

// model is one run.
type model struct {
	*rand.Rand
	faults
	now     time.Duration // the real time
	events  []event       // in order
	ledger  *ledger.Ledger
	rate    float64 // of the clock of the store
	nodes   []*node
	calm    bool // nothing fails any more
	traced  bool
	trace   []string
	fault   string
	grants  int
	lost    int           // places that a process lost that was never out of reach
	back    time.Duration // when the store is reached again
	emptied time.Duration // when it has lost its data last
	overFor time.Duration // how long after that a grant was over at most
	over    int           // by how many places at most
}

// node is a process.
type node struct {
	name    string
	pump    *pump
	rate    float64
	offset  time.Duration
	stopped time.Duration // until then
	dead    bool
	seq     uint64
	reached time.Duration // when an exchange was answered last
	waits   []*Hold
}

type event struct {
	at time.Duration
	do func()
}

func newModel(seed uint64, f faults) *model {
	m := &model{Rand: rand.New(rand.NewPCG(seed, 7)), faults: f, emptied: never}
	m.rate = m.clockRate()
	m.create()
	for range 2 + m.IntN(3) {
		m.boot()
	}
	return m
}

// create creates the store.
func (m *model) create() { m.ledger = ledger.New(64, m.ledgerTime) }

// ledgerTime is the time of the store.
func (m *model) ledgerTime() time.Duration { return time.Duration(float64(m.now) * m.rate) }

// clockRate returns how fast a clock is: a thousandth too fast or slow at most.
func (m *model) clockRate() float64 { return 1 + 0.001*(2*m.Float64()-1) }

func (m *model) boot() {
	n := &node{name: fmt.Sprint("p", len(m.nodes)), rate: m.clockRate(), offset: m.duration(time.Hour), reached: m.now}
	n.pump = leased(modelLease, options{policy: m.policy, strict: !m.loose}, func(h *Hold) { m.changed(n, h) })
	n.pump.claim.Process = n.name
	m.nodes = append(m.nodes, n)
	m.after(m.duration(100*time.Millisecond), func() { m.demand(n) })
}

func (m *model) duration(most time.Duration) time.Duration {
	return time.Duration(m.Int64N(int64(most)) + 1)
}

func (m *model) after(d time.Duration, do func()) {
	e := event{m.now + d, do}
	i := sort.Search(len(m.events), func(i int) bool { return m.events[i].at > e.at })
	m.events = slices.Insert(m.events, i, e)
}

// log adds to the trace.
func (m *model) log(n *node, format string, args ...any) {
	if m.traced {
		m.trace = append(m.trace, fmt.Sprintf("%7.1f ms  %s  %s", float64(m.now)/1e6, n.name, fmt.Sprintf(format, args...)))
	}
}

// clock is the time of a process.
func (m *model) clock(n *node) time.Duration { return n.offset + time.Duration(float64(m.now)*n.rate) }

// on does something in a process: later if it stands still, never if it is dead.
func (m *model) on(n *node, do func()) {
	switch {
	case n.dead:
	case m.now < n.stopped: // whatever has been waiting goes on in any order
		m.afterIn(n, n.stopped-m.now+m.duration(20*time.Microsecond), do)
	default:
		do()
		m.update(n)
	}
}

// afterIn does something in a process after a while.
func (m *model) afterIn(n *node, d time.Duration, do func()) { m.after(d, func() { m.on(n, do) }) }

// changed is what the pump of a process tells of a want.
func (m *model) changed(n *node, w *Hold) {
	switch w.state {
	case held: // until the process gives it back
		m.grants++
		if m.believed() > modelMax {
			m.overFor = max(m.overFor, m.now-m.emptied)
		}
		m.log(n, "has got %d of %d", w.want.N, w.want.Max)
		m.afterIn(n, m.duration(modelLease/8<<m.IntN(5)), func() { n.pump.cancel(w) })
	case released:
		m.log(n, "gives %d back", w.want.N)
	case lost:
		m.log(n, "has lost %d", w.want.N)
		if m.now-n.reached < modelLease*3/4 || m.outages && n.stopped == 0 {
			m.lost++
		}
	}
}

// update does what the pump of a process has to do.
func (m *model) update(n *node) {
	now := m.clock(n)
	n.pump.tick(now)
	if n.pump.exchangeAt() <= now {
		m.send(n)
	}
	if at := n.pump.due(); at != never {
		m.after(max(time.Duration(float64(at-now)/n.rate), 0)+time.Microsecond, func() {
			if n.pump.due() <= m.clock(n) {
				m.on(n, func() {})
			}
		})
	}
}

// demand makes a process want places, again and again.
func (m *model) demand(n *node) {
	if m.calm {
		return
	}
	m.on(n, func() {
		limit := uint64(modelMax)
		if m.IntN(8) == 0 {
			limit -= uint64(m.IntN(3))
		}
		w := &Hold{want: window.Want{N: 1 + m.Uint64N(limit), Max: limit, Wait: m.IntN(4) > 0}}
		if m.IntN(2) == 0 {
			w.want.N = 1
		}
		n.pump.add(w)
		n.waits = append(n.waits, w)
		if m.IntN(6) == 0 {
			m.afterIn(n, m.duration(modelLease/2), func() { n.pump.cancel(w) })
		}
	})
	m.after(m.duration(modelLease), func() { m.demand(n) })
}

// travel returns how long a message takes.
func (m *model) travel() time.Duration {
	if !m.calm && m.late > 0 && m.IntN(10) == 0 {
		return m.duration(m.late)
	}
	return m.duration(4 * time.Millisecond)
}

func (m *model) dropped() bool { return !m.calm && (m.now < m.back || m.losses && m.IntN(10) == 0) }

// send makes an exchange.
func (m *model) send(n *node) {
	if n.pump.phase == sent {
		m.fault = "two exchanges of a process at a time"
	}
	sentAt := m.clock(n)
	n.seq++
	c := *n.pump.begin(sentAt, n.seq)
	c.Wants = slices.Clone(c.Wants) // the message is on its way while the process makes other claims
	m.log(n, "says that it holds %d, and wants %v: exchange %d", c.Held, c.Wants, c.Seq)
	c.Wake = func() {
		if !m.dropped() {
			m.afterIn(n, m.travel(), n.pump.again)
		}
	}
	if !m.dropped() {
		m.after(m.travel(), func() { m.arrive(n, c) })
	}
	failure := unanswered
	m.afterIn(n, modelTimeout/2, func() {
		if m.clock(n)-sentAt < modelTimeout*3/4 {
			failure = failing
		}
	})
	m.afterIn(n, modelTimeout, func() { // the process waits no longer
		if n.seq == c.Seq && n.pump.phase == sent {
			m.log(n, "has no answer to exchange %d", c.Seq)
			n.pump.failed(m.clock(n), errLate, failure)
		}
	})
}

// arrive is a claim that arrives at the store.
func (m *model) arrive(n *node, c window.Claim) {
	a, wake := m.ledger.Exchange(&c)
	if wake != nil {
		wake()
	}
	m.log(n, "exchange %d is at the store: %d are used, tokens %v, lost %v, late %v", c.Seq, a.Used, a.Tokens, a.Lost, a.Late)
	if m.dropped() {
		return
	}
	m.afterIn(n, m.travel(), func() {
		if n.seq != c.Seq || n.pump.phase != sent {
			return
		}
		m.log(n, "has the answer to exchange %d", c.Seq)
		n.reached = m.now
		n.pump.answered(m.clock(n), &a)
	})
}

// believed is how many places holders believe to hold: those for whom Valid is true.
func (m *model) believed() (n uint64) {
	for _, node := range m.nodes {
		if !node.dead && m.clock(node) < node.pump.loseAt() {
			n += node.pump.held
		}
	}
	return n
}

// disturb makes something fail, again and again.
func (m *model) disturb() {
	if m.calm {
		return
	}
	n := m.nodes[m.IntN(len(m.nodes))]
	switch fault := m.IntN(6); {
	case fault == 0 && m.crashes && !n.dead:
		m.log(n, "crashes")
		n.dead = true
		m.boot()
	case fault > 3 && m.stops && !n.dead:
		n.stopped = max(n.stopped, m.now+m.duration(2*modelLease))
		m.log(n, "stands still until %.1f ms", float64(n.stopped)/1e6)
	case fault == 1 && m.restarts:
		m.log(&node{name: "store"}, "has lost its data")
		m.emptied = m.now
		m.create()
		m.ledger.Birth = m.ledgerTime()
	case fault == 2 && m.outages && m.now > m.back+modelLease:
		m.back = m.now + modelLease/2 + m.duration(2*modelLease)
		m.log(&node{name: "store"}, "is away until %.1f ms", float64(m.back)/1e6)
	}
	m.after(m.duration(modelLease/2), m.disturb)
}

// run runs for some leases, and then without faults until nobody waits. It returns what is wrong.
func (m *model) run() string {
	m.after(m.duration(modelLease), m.disturb)
	for m.fault == "" && len(m.events) > 0 && m.now < 60*modelLease {
		m.calm = m.now >= 10*modelLease
		m.step()
	}
	if m.fault != "" {
		return m.fault
	}
	for _, n := range m.nodes {
		for _, w := range n.waits {
			if !n.dead && (w.state == waiting || w.state == held) {
				return fmt.Sprintf("stuck: %s still wants or holds %d", n.name, w.want.N)
			}
		}
	}
	m.now += 2 * modelLease // a late message may have claimed places
	if p, _ := m.ledger.Exchange(&window.Claim{Key: "k"}); p.Used != 0 {
		return fmt.Sprintf("stuck: %d places are held by nobody", p.Used)
	}
	if m.grants == 0 {
		return "stuck: nothing was ever granted"
	}
	return ""
}

func (m *model) step() {
	e := m.events[0]
	m.events = m.events[1:]
	m.now = max(m.now, e.at)
	e.do()
	n := m.believed()
	m.over = max(m.over, int(n)-modelMax)
	if n > modelMax && (!m.loose || m.emptied == never && !m.outages) {
		m.fault = fmt.Sprintf("over: %d of %d are held", n, modelMax)
	}
}

// everything is all faults.
var everything = faults{crashes: true, stops: true, restarts: true, losses: true, late: modelLease * 3 / 2}

var modelRuns = flag.Int("inflight.modelruns", 2000, "runs of TestModelIsNeverOverOrStuck")

// runModels runs models with faults: a part of all runs. If a run is wrong, the test fails with its trace.
func runModels(t *testing.T, part int, f faults, wrong func(m *model) bool) {
	t.Helper()
	runs := *modelRuns / part
	if testing.Short() {
		runs /= 10
	}
	for seed := range uint64(runs) {
		m := newModel(seed, f)
		if fault := m.run(); fault == "" && !wrong(m) {
			continue
		}
		m = newModel(seed, f)
		m.traced = true
		fault := m.run()
		t.Fatalf("%s\nseed %d: %s, %d lost, over for %v", strings.Join(m.trace, "\n"), seed, fault, m.lost, m.overFor)
	}
}

// TestModelIsNeverOverOrStuck runs random schedules, with faults.
func TestModelIsNeverOverOrStuck(t *testing.T) {
	runModels(t, 1, everything, func(m *model) bool { return m.grants < 5 }) // each does something
}

// A process that reaches the store loses nothing, even if the store loses its data. A policy keeps what is held while the
// store is away, however long that is, but not if the process stood still.
func TestModelLosesNothingThatIsKept(t *testing.T) {
	renewed := faults{crashes: true, restarts: true, late: modelLease / 16}
	away := faults{loose: true, outages: true, crashes: true, policy: Share}
	for _, f := range []faults{renewed, away} {
		runModels(t, 2, f, func(m *model) bool { return m.lost > 0 })
	}
	runModels(t, 2, faults{loose: true, stops: true, crashes: true, policy: Share}, func(*model) bool { return false })
}

// Without strictness, places are over Max only after a loss of data. Grants are over for a lease at most, and for a
// quarter if all processes reach the store, each with the time of messages. Nobody who reaches it loses a place.
func TestModelIsOverOnlyAfterALossOfData(t *testing.T) {
	loose, restarts := everything, faults{loose: true, crashes: true, restarts: true}
	loose.loose = true
	over := 0
	for f, most := range map[faults]time.Duration{loose: modelLease, restarts: modelLease / 4} {
		runModels(t, 2, f, func(m *model) bool {
			over = max(over, m.over)
			return m.overFor > most+10*time.Millisecond || f == restarts && m.lost > 0
		})
	}
	t.Logf("%d places more than Max, %d, are held at most", over, modelMax)
	require.Positive(t, over)
}
