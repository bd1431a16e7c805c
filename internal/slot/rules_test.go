package slot

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/internal/testkit/race"
)

// rule is a rule that the model can leave out.
type rule int

// The rules.
const (
	ruleSeenLive rule = iota
	ruleResponseBy
	ruleFreeLast
	ruleTidyStable
	ruleGuard
	ruleGuardHalf
	ruleConnection
	ruleBesideOver
	ruleReadFirst
	ruleSpoil
	ruleDoomed
	ruleCreateA
	ruleRetireStable
	ruleRetireFirst
	ruleRemoveStable
	ruleClaim
	ruleClaimCount
	ruleClaimAdded
	ruleOnlyClaimed
	ruleResetStable
	ruleResetChain
	ruleResetClean
	ruleReturnInTime
	ruleReturnOnce
	ruleReturnConnection
	ruleReturnSame
	rules
)

// extend extends a history, by looser rules in some variants.
func (c *client) extend(h History, l Lookup) History {
	next := c.bands.Extend(h, l)
	if h.Last.Received.IsZero() {
		return next
	}
	for id := range next.Since {
		old, now := h.Last.Slots[id], l.Slots[id]
		state := c.bands.State(now)
		if state != c.bands.State(old) {
			continue
		}
		if c.off[ruleResetChain] && state == Live && l.Received.Sub(h.Last.Sent) < 4*c.bands.Scale ||
			c.off[ruleClaimCount] && state == Doomed {
			next.Since[id] = h.Since[id]
		}
	}
	return next
}

// decide returns the next action, by looser rules in some variants.
func (c *client) decide(next func(History) Action, h History) Action {
	if c.off[ruleReadFirst] && c.bands.State(h.Last.Slots[A]) == Free {
		h.Last.First = A
	} else if c.off[ruleReadFirst] {
		h.Last.First = B
	}
	m := next(h)
	stable := h
	stable.Since = [2]time.Time{}
	early := next(stable)
	s := c.bands.states(h.Last)
	first, second := s[A], s[B]
	by := h.Last.Sent.Add(c.bands.Guard)
	switch {
	case c.off[ruleTidyStable] && early.Kind == Tidy,
		c.off[ruleRetireStable] && early.Kind == Retire,
		c.off[ruleRemoveStable] && early.Kind == Claim,
		c.off[ruleResetStable] && early.Kind == End:
		m = early
	}
	switch {
	case c.off[ruleSpoil] && early.Kind == Spoil:
		m = Action{Kind: Open, Slot: A, By: by}
	case c.off[ruleBesideOver] && first == Free && second != Live:
		m = Action{Kind: Open, Slot: A, By: by}
	case c.off[ruleBesideOver] && second == Free && first != Live:
		m = Action{Kind: Open, Slot: B, By: by}
	case c.off[ruleDoomed] && first == Doomed && h.Last.Slots[A].Count == 0 && second == Over:
		m = Action{Kind: Open, Slot: A, By: by}
	case c.off[ruleDoomed] && second == Doomed && h.Last.Slots[B].Count == 0 && first == Over:
		m = Action{Kind: Open, Slot: B, By: by}
	case c.off[ruleCreateA] && first == Absent && second == Absent && m.Kind == Create:
		m.Slot = ID(c.rng.IntN(2))
	case c.off[ruleRetireFirst] && m.Kind == Retire && first == Over && second == Over:
		m = Action{Kind: Claim, Slots: [2]bool{A: true}, By: by}
	case c.off[ruleResetClean] && first != second && (early.Kind == End && c.bands.stable(h, early.Slot) ||
		early.Kind == Retire && c.bands.stable(h, early.Slot.Other())):
		w, _ := c.bands.Live(h.Last)
		m = Action{Kind: End, Slot: w.Slot, By: by}
	case c.off[ruleResetClean] && early.Kind == Retire:
		m.At = h.Last.Sent.Add(c.bands.Guard / 2)
	case c.off[ruleClaim] && m.Kind == Claim:
		m.Kind = Remove
	}
	return m
}

// varyOps returns the requests of an action, as some variants have them.
func (c *client) varyOps(m Action, ops []Request) []Request {
	if m.Kind == Open && c.off[ruleFreeLast] {
		return append(append([]Request{}, ops[3:]...), ops[:3]...)
	}
	return ops
}

// The focuses make what a rule is about more frequent.

func late(s *settings) { s.atEnd, s.lateRate = 0.9, 0.4 }

func cuts(s *settings) { late(s); s.faultRate, s.size = 0.3, 4 }

func tornLookups(s *settings) { late(s); s.faultRate, s.size, s.lateRate, s.resetRate = 0.3, 4, 0.5, 0 }

func exhausted(s *settings) {
	s.scale, s.largest, s.limit, s.largestHit = time.Second, 255, 100, 127
	s.atEnd, s.atDoom, s.size, s.faultRate = 0.3, 0.9, 4, 0.1
}

func manyResets(s *settings) {
	s.resetRate, s.size, s.steps, s.atEnd, s.atDoom, s.returnRate, s.lateRate = 0.4, 6, 15, 0, 0, 0, 0.3
	s.scale, s.largest, s.restless, s.slow = 4*time.Minute, 255, 2*time.Second, Open
	s.quick, s.faultRate, s.deaths, s.restarts = false, 0, 0, 0
}

func lateResets(s *settings) {
	s.resetRate, s.size, s.steps, s.atEnd, s.atDoom, s.returnRate, s.lateRate = 0.4, 4, 10, 0.3, 0, 0, 0.6
	s.scale, s.largest, s.restless, s.slow = 10*time.Second, 65535, time.Second, Tidy
	s.quick, s.faultRate, s.deaths, s.restarts = false, 0, 0, 0
}

func manyReturns(s *settings) { late(s); s.returnRate, s.resetRate, s.size = 1, 0, 4 }

func laterReturns(s *settings) {
	manyResets(s)
	s.returnRate, s.laterRate, s.slow = 0.5, 1, Look
}

func manyRestarts(s *settings) { s.restarts, s.size, s.steps = 8, 4, 10 }

func idleSlots(s *settings) { s.atEnd, s.atDoom, s.size, s.faultRate, s.slow = 0, 0.9, 4, 0.02, Open }

// needed are the rules that exactness needs. Without one, some run violates an invariant. The
// seed is that of the shortest trace that is known. If the model has changed, others are tried.
var needed = []struct {
	number int // in the comment of the package
	rule   rule
	name   string
	focus  func(*settings)
	seed   uint64
}{
	{1, ruleSeenLive, "hits count only if the QUERY shows an open window", nil, 20},
	{2, ruleResponseBy, "hits count only if the response is there in time", cuts, 7888},
	{3, ruleGuard, "no action is executed after its guard", nil, 62},
	{3, ruleGuardHalf, "a guard is at most half a scale (here 0.9)", nil, 8509},
	{4, ruleConnection, "actions go out on the connection of their lookup", manyRestarts, 5996},
	{5, ruleCreateA, "Create prefers A", nil, 38},
	{5, ruleBesideOver, "a free slot is opened only beside one that is over", manyReturns, 48},
	{5, ruleReadFirst, "the slot that is opened was read before the other one", tornLookups, 45732},
	{5, ruleSpoil, "of two free slots, none is opened", manyReturns, 1199},
	{6, ruleFreeLast, "Open frees last", cuts, 11714},
	{7, ruleDoomed, "doomed slots are not opened", idleSlots, 23048},
	{7, ruleRetireFirst, "a slot is doomed before it is removed", cuts, 39031},
	{8, ruleRetireStable, "Retire only if stable", nil, 4433},
	{8, ruleRemoveStable, "Remove only if stable", nil, 1367},
	{8, ruleTidyStable, "Tidy only if stable", lateResets, 3164},
	{8, ruleResetStable, "End only if stable", manyResets, 148},
	{9, ruleClaim, "Remove only after a claim", nil, 1373},
	{9, ruleClaimCount, "the count was stable before a claim", nil, 1217},
	{9, ruleClaimAdded, "a claim whose ADD fails has not succeeded", exhausted, 57306},
	{9, ruleOnlyClaimed, "Remove only the slot that was claimed", nil, 3255},
	{10, ruleResetChain, "Reset: lookups less than a guard apart", manyResets, 7103},
	{10, ruleResetClean, "Reset: the other slot was clean all the time", lateResets, 890},
	{11, ruleReturnInTime, "hits are returned in time", manyReturns, 717},
	{11, ruleReturnOnce, "hits are returned once", manyReturns, 42331},
	{11, ruleReturnSame, "hits are returned to a window that is certainly the same", laterReturns, 2},
	{11, ruleReturnConnection, "hits are returned on their connection", manyRestarts, 8443},
}

// TestEachRuleIsNeeded runs the model without each of the rules that exactness needs.
func TestEachRuleIsNeeded(t *testing.T) {
	if race.Enabled {
		t.Skip("it has one goroutine, so there are no races, and would take some ten times as long")
	}
	for _, v := range needed {
		t.Run(v.name, func(t *testing.T) {
			const most = 60000
			for seed := v.seed; seed < v.seed+most; seed++ {
				w := simulate(seed, testing.Verbose(), func(s *settings) {
					s.off[v.rule] = true
					if v.focus != nil {
						v.focus(s)
					}
				})
				if w.violation != "" && w.violation != endless {
					t.Logf("rule %d, seed %d: %s\n%+v\n%v", v.number, seed, w.violation, w.settings, w)
					return
				}
			}
			t.Errorf("no violation in %d runs", most)
		})
	}
}
