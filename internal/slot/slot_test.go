package slot

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	case a.Kind != Again && a.Kind != Done:
		s += " " + a.Slot.String()
	}
	return s
}

func TestStates(t *testing.T) {
	for ttl, want := range map[uint64]State{
		0: Doomed, 38533: Doomed, 38534: Over, 64534: Over, 64535: Live, 65534: Live, math.MaxUint16: Live,
	} {
		require.Equal(t, want, bands.State(Observation{Exists: true, Count: 1, TTL: ttl}), "TTL %d", ttl)
	}
	for state, o := range observations {
		require.Equal(t, state, bands.State(o))
	}
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
		{Free, "create B|join B|again|open A|again", "create B|join B|spoil A|open A|claim B"},
		{Over, "create B|join B|open B|again|again", "create B|join B|open B|retire A|claim B"},
		{Doomed, "again|join B|again|again|again", "claim A|join B|claim A|claim A|claim A"},
	} {
		row := func(apart time.Duration) (s string) {
			for i, b := range states {
				if i > 0 {
					s += "|"
				}
				s += describe(bands.Hit(lookedUp(test.a, b, apart)))
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

func TestWhatAResetDoes(t *testing.T) {
	for b, want := range map[State]string{Absent: "again, then end A", Free: "again, then end A", Doomed: "again, then end A",
		Over: "again, then retire B", Live: "again, then again"} {
		var e Ending
		got := describe(bands.Reset(lookedUp(Live, b, bands.Guard/2), &e))
		// Lookups that are a guard apart do not show that it is the same window.
		require.Equal(t, Again, bands.Reset(lookedUp(Live, Absent, bands.Guard), &e).Kind)
		h := lookedUp(Live, b, bands.Guard/2)
		l := h.Last
		l.Sent, l.Received = l.Sent.Add(bands.Guard/2), l.Received.Add(bands.Guard/2)
		require.Equal(t, want, got+", then "+describe(bands.Reset(bands.Extend(h, l), &e)), "B is %v", b)
	}
	for _, a := range []State{Absent, Free, Over, Doomed} {
		require.Equal(t, Done, bands.Reset(lookedUp(a, Over, bands.Guard), &Ending{}).Kind)
	}
	empty := lookedUp(Live, Absent, bands.Guard)
	empty.Last.Slots[A].Count = 0
	require.Equal(t, Spoil, bands.Reset(empty, &Ending{}).Kind, "a slot that would look free")
	other := Ending{Found: true, Window: Window{Slot: B}}
	require.Equal(t, Done, bands.Reset(lookedUp(Live, Absent, bands.Guard/2), &other).Kind, "another window")
}

func TestBatches(t *testing.T) {
	for _, test := range []struct {
		action Action
		want   string
	}{
		{Action{Kind: Again}, "query A 0, query B 0"},
		{Action{Kind: Join, Slot: B}, "decrease B 2, query B 0"},
		{Action{Kind: Open, Slot: A}, "ttl A 65535, decrease A 2, query A 0, quota B 65535, ttl B 64534"},
		{Action{Kind: Create, Slot: A}, "insert A 65533"},
		{Action{Kind: Create, Slot: B, Frees: true}, "insert B 65533, quota A 65535, ttl A 64534"},
		{Action{Kind: Tidy, Slot: A}, "quota B 65535, ttl B 64534"},
		{Action{Kind: Spoil, Slot: A}, "decrease A 1"},
		{Action{Kind: Retire, Slot: A}, "ttl A 38533"},
		{Action{Kind: End, Slot: B}, "ttl B 64534"},
		{Action{Kind: GiveBack, Slot: B}, "increase B 2"},
		{Action{Kind: Refill, Slots: [2]bool{true, true}}, "quota A 1, quota B 1"},
		{Action{Kind: Claim, Slots: [2]bool{true, true}}, "decrease A 1, query A 0, decrease B 1, query B 0"},
		{Action{Kind: Remove, Slots: [2]bool{B: true}}, "purge B 0"},
		{Action{Kind: Done}, ""},
	} {
		got := ""
		for i, r := range bands.Requests(nil, test.action, 2) {
			if i > 0 {
				got += ", "
			}
			verb := [...]string{"query", "insert", "decrease", "increase", "quota", "ttl", "purge"}[r.Verb]
			got += fmt.Sprintf("%s %v %d", verb, r.Slot, r.Value)
		}
		require.Equal(t, test.want, got, "%v", test.action.Kind)
	}
}

func TestActionsAreNotLate(t *testing.T) {
	a := bands.Hit(lookedUp(Free, Over, 0))
	sent := lookedUp(Free, Over, 0).Last.Sent
	require.Equal(t, sent.Add(bands.Guard), a.By)
	require.Equal(t, sent.Add(bands.Guard/2), bands.Deadline(a))
}

func TestWindowsEndBetweenUntilAndLatest(t *testing.T) {
	w, ok := bands.Live(Lookup{
		Slots: [2]Observation{B: observations[Live]}, Sent: epoch, Received: epoch.Add(20 * time.Millisecond),
	})
	require.True(t, ok)
	require.Equal(t, Window{B, 3, Times{w.Sent, w.Received, epoch.Add(499 * time.Millisecond), epoch.Add(520 * time.Millisecond)}}, w)
	require.True(t, w.Open(epoch.Add(498*time.Millisecond)))
	require.False(t, w.Open(epoch.Add(499*time.Millisecond)))

	// The client that opened the window knows its end better.
	_, w = bands.Result(Action{Kind: Open, Slot: B}, true, true, bands.Observe(math.MaxUint16-3, 65534), epoch, epoch.Add(20*time.Millisecond))
	require.Equal(t, epoch.Add(time.Second), w.Until)
}

func TestOlderOfTwoWindows(t *testing.T) {
	younger := bands.Observe(math.MaxUint16-3, 65534)
	for _, l := range []Lookup{{Slots: [2]Observation{observations[Live], younger}}, {Slots: [2]Observation{younger, observations[Live]}}} {
		w, ok := bands.Live(l)
		require.True(t, ok)
		require.Equal(t, observations[Live], l.Slots[w.Slot])
	}
}

func TestOutcomes(t *testing.T) {
	a := Action{Kind: Join, Slot: A}
	for _, test := range []struct {
		added bool
		state State
		want  Outcome
	}{{true, Live, Counted}, {false, Live, Full}, {true, Over, Missed}, {true, Free, Missed}, {false, Absent, Missed}, {true, Doomed, Missed}} {
		got, _ := bands.Result(a, false, test.added, observations[test.state], epoch, epoch)
		require.Equal(t, test.want, got, "%v", test.state)
	}
	got, w := bands.Created(Action{Kind: Create}, true, 7, epoch, epoch)
	require.Equal(t, Counted, got)
	require.EqualValues(t, 7, w.Count)
	got, _ = bands.Created(Action{Kind: Create}, false, 7, epoch, epoch)
	require.Equal(t, Missed, got)
}

func TestOnlyOneClaimSucceeds(t *testing.T) {
	h := lookedUp(Doomed, Doomed, bands.Guard)
	a := bands.Clean(h, bands.Doom)
	require.Equal(t, "claim A B", describe(a))
	one, two := observations[Doomed], observations[Doomed]
	one.Count, two.Count = one.Count+1, two.Count+2
	next, ok := bands.Claimed(h, a, [2]bool{true, true}, [2]Observation{one, two}, epoch)
	require.True(t, ok)
	require.Equal(t, [2]bool{A: true}, next.Slots)
	for _, o := range []Observation{two, observations[Doomed], observations[Live], {}} {
		_, ok = bands.Claimed(h, a, [2]bool{true, true}, [2]Observation{o, o}, epoch)
		require.False(t, ok, "%+v", o)
	}
	_, ok = bands.Claimed(h, a, [2]bool{}, [2]Observation{one, one}, epoch)
	require.False(t, ok, "the counter could not hold the claim")
}

func TestExhaustedRecordsAreRefilledBeforeTheyAreClaimed(t *testing.T) {
	full := bands.Observe(0, 5000)
	l := Lookup{Slots: [2]Observation{full}, Sent: epoch, Received: epoch}
	h := bands.Extend(History{}, l)
	l.Sent, l.Received = epoch.Add(bands.Guard), epoch.Add(bands.Guard)
	require.Equal(t, Refill, bands.Hit(bands.Extend(h, l)).Kind)
}

func TestJanitorsAndWatchersCleanInTime(t *testing.T) {
	l := Lookup{Slots: [2]Observation{observations[Over], observations[Free]}, Sent: epoch, Received: epoch}
	h := bands.Extend(History{}, l)
	require.Equal(t, Action{Kind: Again, At: epoch.Add(20001 * time.Millisecond)}, bands.Clean(h, bands.Doom))
	require.Equal(t, Action{Kind: Again, At: epoch.Add(39268 * time.Millisecond)}, bands.Clean(h, bands.Watch))
	require.Equal(t, Done, bands.Clean(History{}, bands.Doom).Kind)

	require.Equal(t, bands.Doom, bands.Below(l, epoch.Add(-7*time.Second)))
	require.Equal(t, bands.Watch, bands.Below(l, epoch.Add(-8*time.Second)), "another client has opened a window since")
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

func TestEndsNeedLookupsLessThanAGuardApart(t *testing.T) {
	// Without latency, the second lookup would come exactly a guard after the first one.
	for _, trip := range []time.Duration{0, time.Nanosecond, time.Millisecond, bands.Guard / 8} {
		var h History
		var e Ending
		at := epoch
		kinds := []Kind{}
		for range 4 {
			h = bands.Extend(h, Lookup{
				Slots: [2]Observation{observations[Live], observations[Free]}, Sent: at, Received: at.Add(trip),
			})
			a := bands.Reset(h, &e)
			kinds = append(kinds, a.Kind)
			if a.Kind != Again {
				break
			}
			require.Less(t, a.At.Add(trip).Sub(at), bands.Guard, "a lookup after %v", trip)
			at = a.At
		}
		require.Equal(t, End, kinds[len(kinds)-1], "responses take %v: %v", trip, kinds)
	}
}

func TestSlotsThatChangeAreNotStable(t *testing.T) {
	more := observations[Over]
	more.Count++
	longer := observations[Over]
	longer.TTL++
	for _, now := range []Observation{more, longer, observations[Free], observations[Doomed], observations[Live], {}} {
		h := lookedUp(Over, Over, bands.Guard/2)
		l := h.Last
		l.Sent, l.Received = l.Sent.Add(bands.Guard), l.Received.Add(bands.Guard)
		l.Slots[A] = now
		h = bands.Extend(h, l)
		require.False(t, bands.stable(h, A), "%+v", now)
		require.True(t, bands.stable(h, B))
	}
}

func TestSlotThatWasReadLastIsNotOpened(t *testing.T) {
	l := Lookup{Slots: [2]Observation{observations[Over], observations[Free]}, Sent: epoch, Received: epoch.Add(time.Millisecond)}
	a := bands.Hit(bands.Extend(History{}, l))
	require.Equal(t, Action{Kind: Again, Slot: B, At: l.Received}, a)
	require.Equal(t, []Request{{Query, B, 0}, {Query, A, 0}}, bands.Requests(nil, a, 0))
	l.First = a.Slot
	require.Equal(t, "open B", describe(bands.Hit(bands.Extend(History{}, l))))
}
