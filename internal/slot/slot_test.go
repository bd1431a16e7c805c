package slot

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/window"
)

// bands are those of the following tests: milliseconds, T = 65535, M = 64535, D = 38534.
var bands, _ = BandsFor(time.Second, math.MaxUint16)

// observations are one for each state.
var observations = map[State]Observation{
	Absent: {},
	Live:   bands.Observe(math.MaxUint16-3, 65034),
	Free:   bands.Observe(math.MaxUint16, 58534),
	Over:   bands.Observe(math.MaxUint16-3, 58534),
	Doomed: bands.Observe(math.MaxUint16-3, 5000),
}

// lookedUp returns the history of two lookups that show the same, a time apart.
func lookedUp(a, b State, apart time.Duration) History {
	first := Lookup{Slots: [2]Observation{observations[a], observations[b]}, Sent: epoch, Received: epoch.Add(time.Millisecond)}
	if a == Over && b == Free {
		first.First = B
	}
	last := first
	last.Sent, last.Received = first.Received.Add(apart), first.Received.Add(apart+time.Millisecond)
	return bands.Extend(bands.Extend(History{}, first), last)
}

// describe formats an action.
func describe(a Action) string {
	s := a.Kind.String()
	switch {
	case a.Slots == [2]bool{true, true}:
		s += " A B"
	case a.Kind == Claim:
		s += " " + map[bool]string{true: "A", false: "B"}[a.Slots[A]]
	case a.Kind != Look && a.Kind != Done:
		s += " " + a.Slot.String()
	}
	return s
}

func TestWhatAHitDoes(t *testing.T) {
	states := []State{Absent, Live, Free, Over, Doomed}
	for _, test := range []struct {
		a     State
		at    string // when the slots have been like this for less than a guard, for each state of B
		later string // when they are stable
	}{
		{Absent, "create A|join B|create A|create A|create A", ""},
		{Live, "join A|join A|join A|join A|join A", ""},
		{Free, "create B|join B|look|open A|look", "create B|join B|spoil A|open A|claim B"},
		{Over, "create B|join B|open B|look|look", "create B|join B|open B|retire A|claim B"},
		{Doomed, "look|join B|look|look|look", "claim A|join B|claim A|claim A|claim A"},
	} {
		row := func(apart time.Duration) (s string) {
			for i, b := range states {
				if i > 0 {
					s += "|"
				}
				s += describe(bands.ToOpen(lookedUp(test.a, b, apart)))
			}
			return s
		}
		require.Equal(t, test.at, row(bands.Guard-1), "A is %v", test.a)
		if test.later == "" {
			test.later = test.at
		}
		require.Equal(t, test.later, row(bands.Guard), "A is %v and stable", test.a)
	}
}

// The model hardly ever comes to these actions.
func TestRareActions(t *testing.T) {
	both := lookedUp(Live, Live, bands.Guard/2)
	require.Equal(t, Look, bands.Reset(both, &Window{}).Kind, "one window has ended while the slots were read")

	h := lookedUp(Doomed, Absent, bands.Guard)
	h.Last.Slots[A].Count = bands.Largest
	full := bands.ToOpen(h)
	require.Equal(t, []Request{{PatchQuota, A, 1}}, bands.Requests(nil, full, 0), "no claim fits the counter")
}

// Both slots look free if one of them is opened while they are read. A Spoil would then count a hit that nobody made.
func TestAFreeSlotIsSpoiledOnceBothAreStable(t *testing.T) {
	h := lookedUp(Free, Free, bands.Guard)
	require.Equal(t, "spoil A", describe(bands.ToOpen(h)))
	for _, id := range []ID{A, B} {
		h := h
		h.Since[id] = h.Last.Received
		require.Equal(t, "look", describe(bands.ToOpen(h)), "%v is not stable", id)
	}
}

// Both slots of a key take as many steps as one.
func TestDoomedSlotsAreClaimedTogether(t *testing.T) {
	for name, next := range map[string]func(History) Action{
		"clean":   func(h History) Action { return bands.Clean(h, bands.Doom) },
		"discard": bands.Discard,
	} {
		h := lookedUp(Doomed, Doomed, bands.Guard)
		require.Equal(t, "claim A B", describe(next(h)), name)
		for _, id := range []ID{A, B} {
			h := h
			h.Since[id] = h.Last.Received
			require.Equal(t, "look", describe(next(h)), "%s: %v is not stable", name, id)
		}
		h.Last.Slots[B].Count = bands.Largest
		require.Equal(t, []Request{{PatchQuota, B, 1}}, bands.Requests(nil, next(h), 0), name)
		h.Last.Slots[A].Count = bands.Largest
		require.Equal(t, []Request{{PatchQuota, A, 1}, {PatchQuota, B, 1}}, bands.Requests(nil, next(h), 0), name)
	}
}

func TestOnlyOneClaimSucceeds(t *testing.T) {
	h := lookedUp(Doomed, Doomed, bands.Guard)
	a := bands.Clean(h, bands.Doom)
	claim := func(added bool, shown ...Observation) (removed [2]bool) {
		var e Effects
		for _, q := range bands.Requests(nil, a, 0) {
			e.Note(q, q.Op == Query || added, shown[q.Slot])
		}
		next, ok := bands.Claimed(h, a, e)
		require.Equal(t, next.Slots != [2]bool{}, ok)
		return next.Slots
	}
	one, two := observations[Doomed], observations[Doomed]
	one.Count, two.Count = one.Count+1, two.Count+2
	require.Equal(t, [2]bool{A: true}, claim(true, one, two))
	for _, o := range []Observation{two, observations[Doomed], observations[Live], {}} {
		require.Zero(t, claim(true, o, o), "%+v", o)
	}
	require.Zero(t, claim(false, one, one), "the counter could not hold the claim")
}

func TestHitsAreReturnedInTime(t *testing.T) {
	w := Window{Slot: B, Times: Times{Sent: epoch, Until: epoch.Add(800 * time.Millisecond)}}
	a, ok := bands.GiveBack(w, epoch.Add(400*time.Millisecond))
	require.True(t, ok)
	require.Equal(t, Action{Kind: GiveBack, Slot: B, By: epoch.Add(bands.Guard)}, a)
	_, ok = bands.GiveBack(w, epoch.Add(bands.Guard))
	require.False(t, ok, "a guard after the hits")
	w.Sent = epoch.Add(600 * time.Millisecond)
	_, ok = bands.GiveBack(w, epoch.Add(800*time.Millisecond))
	require.False(t, ok, "the window may be over")
}

func TestEndOfAWindowNarrowsWithEachObservation(t *testing.T) {
	at := func(from, to int64) Times { return Times{Until: time.Unix(from, 0), Latest: time.Unix(to, 0)} }
	for _, c := range []struct {
		name           string
		now, old, want Times
		same           bool
	}{
		{"within", at(3, 5), at(1, 9), at(3, 5), true},
		{"around", at(1, 9), at(3, 5), at(3, 5), true},
		{"earlier", at(1, 4), at(3, 5), at(3, 4), true},
		{"later", at(4, 9), at(3, 5), at(4, 5), true},
		{"a point", at(5, 9), at(3, 5), at(5, 5), true},
		{"another window", at(6, 9), at(3, 5), at(6, 9), false},
		{"another window before", at(0, 2), at(3, 5), at(0, 2), false},
	} {
		require.Equal(t, c.same, c.now.Narrow(&c.old, time.Hour), c.name)
		require.Equal(t, c.want, c.now, c.name)
	}
}

func TestBandsOfAllScalesLeaveRoom(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		for scale := window.MinScale; scale < 200*365*24*time.Hour; scale += scale/7 + 1 {
			for _, s := range []time.Duration{scale, scale.Truncate(time.Millisecond), scale.Truncate(time.Second), scale.Truncate(time.Hour)} {
				b, ok := BandsFor(s, api.MaxValue(size))
				if !ok {
					continue
				}
				require.Equal(t, s, b.duration(b.Top-b.Margin), "a window lasts for the scale, exactly")
				require.LessOrEqual(t, b.Top, api.MaxValue(size))
				require.LessOrEqual(t, b.Guard, s/2)
				require.Positive(t, b.Guard)
				require.GreaterOrEqual(t, b.duration(b.Doom), minDoom)
				if b.duration(b.Doom) < fullDoom {
					require.True(t, b.Top == b.Largest || b.duration(b.Top+1) > maxTTL, "%v, %d bytes: more would fit", s, size)
				}
				require.GreaterOrEqual(t, b.duration(b.Doom-b.Watch), 5*b.Guard, "time for a janitor")
				require.GreaterOrEqual(t, b.duration(b.Watch), 5*b.Guard, "time for watchers")
				require.GreaterOrEqual(t, b.duration(b.Margin-b.Doom), s+idleTime, "time between two windows")
				require.Less(t, b.duration(b.Top), maxTTL+1)
				require.Positive(t, b.duration(b.Top))
			}
		}
	}
	for _, scale := range []time.Duration{0, -time.Second, 150 * 365 * 24 * time.Hour, math.MaxInt64} {
		_, ok := BandsFor(scale, math.MaxUint64)
		require.False(t, ok, "%v", scale)
	}
}

// String returns "A" or "B".
func (id ID) String() string { return string('A' + rune(id)) }

// String returns the state's name.
func (s State) String() string { return [...]string{"absent", "live", "free", "over", "doomed"}[s] }

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"look", "read", "done", "join", "open", "create", "tidy", "spoil", "retire",
		"refill", "claim", "remove", "end", "return"}[k]
}

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
	{10, ruleResetChain, "Reset: lookups less than a guard apart", manyResets, 19816},
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
