package slot

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// rule is a rule that the model can leave out.
type rule int

// The rules.
const (
	ruleSeenLive rule = iota
	ruleBelief
	ruleReplyBy
	ruleFree
	ruleFreeLast
	ruleTidySettled
	ruleGuard
	ruleGuardHalf
	ruleConnection
	ruleBesideOver
	ruleSpoil
	ruleDoomed
	ruleCreateA
	ruleRetireSettled
	ruleRetireFirst
	ruleRemoveSettled
	ruleClaim
	ruleClaimCount
	ruleOnlyClaimed
	ruleResetSettled
	ruleResetChain
	ruleResetClean
	ruleReturnInTime
	ruleReturnOnce
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
	m := next(h)
	settled := h
	settled.Since = [2]time.Time{}
	early := next(settled)
	s := c.bands.states(h.Last)
	first, second := s[A], s[B]
	by := h.Last.Sent.Add(c.bands.Guard)
	switch {
	case c.off[ruleTidySettled] && early.Kind == Tidy,
		c.off[ruleRetireSettled] && early.Kind == Retire,
		c.off[ruleRemoveSettled] && early.Kind == Claim,
		c.off[ruleResetSettled] && early.Kind == End:
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
	case c.off[ruleResetClean] && early.Kind == Retire && first != second && c.bands.stable(h, early.Slot.Other()):
		m = Action{Kind: End, Slot: early.Slot.Other(), By: by}
	case c.off[ruleFree] && m.Kind == Tidy:
		m = Action{Kind: Again, At: c.time().Add(c.bands.Scale)}
	case c.off[ruleClaim] && m.Kind == Claim:
		m.Kind = Remove
	}
	return m
}

// varyOps returns the requests of a action, as some variants have them.
func (c *client) varyOps(m Action, ops []Request) []Request {
	switch {
	case m.Kind == Open && c.off[ruleFree]:
		return ops[:3]
	case m.Kind == Open && c.off[ruleFreeLast]:
		return append(append([]Request{}, ops[3:]...), ops[:3]...)
	}
	return ops
}

// without are the variants of the model: each leaves out one rule.
var without = []struct {
	rule  rule
	name  string
	exact bool // without the rule, some run violates an invariant
	most  int  // runs
	focus func(*settings)
}{
	{ruleSeenLive, "hits count only if the QUERY shows an open window", true, 5000, nil},
	{ruleBelief, "hits without a lookup only until the window may end", false, 5000, nil},
	{ruleReplyBy, "replies count only until half a scale after that", true, 5000, cuts},
	{ruleFree, "Open and Tidy free the other slot", false, 5000, nil},
	{ruleFreeLast, "Open arms first and frees last", true, 5000, cuts},
	{ruleTidySettled, "Tidy by others only if the slot is settled", true, 5000, lateResets},
	{ruleGuard, "no action is executed after its guard", true, 5000, nil},
	{ruleGuardHalf, "a guard is at most half a scale", true, 5000, nil},
	{ruleConnection, "actions only on the connection of their lookup", true, 5000, manyRestarts},
	{ruleBesideOver, "Open only beside a slot that is over", true, 5000, manyReturns},
	{ruleSpoil, "of two free slots, none is opened", true, 5000, manyReturns},
	{ruleDoomed, "doomed slots are not opened", true, 5000, idleSlots},
	{ruleCreateA, "Create prefers A", true, 5000, nil},
	{ruleRetireSettled, "Retire only if settled", true, 5000, nil},
	{ruleRetireFirst, "a slot is doomed before it is removed", true, 5000, cuts},
	{ruleRemoveSettled, "Remove only if settled", true, 5000, nil},
	{ruleClaim, "Remove only what was claimed: without claims", true, 5000, nil},
	{ruleClaimCount, "claims need an unchanged count", true, 5000, nil},
	{ruleOnlyClaimed, "Remove only what was claimed: both slots", true, 5000, nil},
	{ruleResetSettled, "Reset only if both slots are settled", true, 5000, manyResets},
	{ruleResetChain, "Reset: lookups less than a guard apart", true, 5000, manyResets},
	{ruleResetClean, "Reset only if the other slot is clean", true, 5000, lateResets},
	{ruleReturnInTime, "give back in time", true, 5000, manyReturns},
	{ruleReturnOnce, "give back once", true, 5000, manyReturns},
}

// The focuses make what a rule is about more frequent.

func late(s *settings) { s.crowd, s.lateRate = 0.9, 0.4 }

func cuts(s *settings) { late(s); s.faultRate, s.size = 0.3, 4 }

func manyResets(s *settings) {
	s.resetRate, s.size, s.steps, s.crowd, s.doom, s.returnRate, s.lateRate = 0.4, 6, 15, 0, 0, 0, 0
	s.scale, s.largest, s.faultRate, s.deaths, s.restarts = 4*time.Minute, 255, 0, 0, 0
}

func lateResets(s *settings) {
	s.resetRate, s.size, s.steps, s.crowd, s.doom, s.lateRate = 0.4, 4, 10, 0.3, 0, 0.6
	s.scale, s.largest, s.restless, s.faultRate, s.deaths = 10*time.Second, 65535, time.Second, 0, 0
}

func manyReturns(s *settings) { late(s); s.returnRate, s.resetRate, s.size = 1, 0, 4 }

func manyRestarts(s *settings) { s.restarts, s.size, s.steps = 8, 4, 10 }

func idleSlots(s *settings) { s.crowd, s.doom, s.size, s.faultRate = 0, 0.9, 4, 0.02 }

var (
	search = flag.Int("slot.search", 0, "look for shorter traces of left-out rules in as many runs")
	only   = flag.String("slot.rule", "", "only rules whose name contains this")
)

func TestEachRuleIsNeeded(t *testing.T) {
	for _, v := range without {
		if !strings.Contains(v.name, *only) {
			continue
		}
		off := func(s *settings) {
			s.off[v.rule] = true
			if v.focus != nil {
				v.focus(s)
			}
		}
		var shortest *world
		first, best, found, tried := 0, 0, 0, 0
		for seed := 1; seed <= max(v.most, *search); seed++ {
			tried++
			w := simulate(uint64(seed), false, off)
			if w.violation == "" {
				continue
			}
			found++
			if first == 0 {
				first = seed
			}
			w = simulate(uint64(seed), true, off)
			if shortest == nil || len(w.trace) < len(shortest.trace) {
				shortest, best = w, seed
			}
			if seed > *search || found >= 20 {
				break
			}
		}
		line := fmt.Sprintf("%-60s", v.name)
		if shortest == nil {
			t.Logf("%s none in %d runs", line, tried)
			continue
		}
		t.Logf("%s run %d, %d of %d, shortest: seed %d, %d steps: %s", line, first, found, tried, best, len(shortest.trace), shortest.violation)
		if *only != "" {
			t.Logf("%+v\n%v", shortest.settings, shortest)
		}
	}
}
