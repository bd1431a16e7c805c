package admission_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// flaky returns a backend whose calls for limits of a name fail.
func flaky(b throttr.Backend, name string, err error) throttr.Backend {
	return testkit.Hooked{Backend: b, Around: func(_ context.Context, _ string, takes []window.Take, do func() error) error {
		if slices.ContainsFunc(takes, func(t window.Take) bool { return t.Limit.Name == name }) {
			return err
		}
		return do()
	}}
}

// costs returns a request of a key whose costs are those of the names of limits, and of others 1.
func costs(of map[string]uint64) admission.Request {
	r := request("k")
	r.Cost = func(l throttr.Limit) uint64 {
		if n, ok := of[l.Name]; ok {
			return n
		}
		return 1
	}
	return r
}

// Without a plan, the limits of the Config apply. If requests in flight are all that it has, the request could not be
// counted.
func TestAPlanThatIsNotKnown(t *testing.T) {
	unknown := errors.New("no database")
	r := request("k")
	r.PlanErr = unknown
	d := newGate(t, admission.Config{FailClosed: true}).Admit(t.Context(), r)
	require.NoError(t, d.Err)
	require.EqualValues(t, 1, d.Strictest.Count)

	cfg := admission.Config{Limits: []throttr.Limit{}, OnlyPlans: true, FailClosed: true, InFlight: exports, Places: newPlaces(t, memory.New())}
	d = newGate(t, cfg).Admit(t.Context(), r)
	defer d.Done()
	require.ErrorIs(t, d.Err, unknown)
	require.Equal(t, admission.Unavailable, d.Verdict())
}

// A length of -1 that was converted is a mistake in the program: no store is asked, and the error says whose it is.
func TestACostOutOfRangeIsAMistake(t *testing.T) {
	for _, hits := range []bool{false, true} {
		gate := newGate(t, admission.Config{Limits: []throttr.Limit{minute, tokens}, CountRefusals: hits})
		d := gate.Admit(t.Context(), costs(map[string]uint64{"tokens": 1<<64 - 1}))
		require.Equal(t, admission.Misconfigured, d.Verdict())
		var bad *throttr.RangeError
		require.ErrorAs(t, d.Err, &bad)
		require.Equal(t, "Cost", bad.Field)
		require.ErrorContains(t, d.Err, `limit "tokens": `)
		require.Equal(t, []uint64{0, 0}, counts(t, gate, request("k")))
	}
}

// With plans, a name that is misspelt or forgotten, in a plan or in Keyed, is a mistake: the limit would count by another
// key, such as the address.
func TestWithPlansAllLimitsHaveKeysOfTheirOwnOrNone(t *testing.T) {
	hour := func(name string) throttr.Limit { return throttr.Limit{Name: name, Max: 2, Scale: time.Hour} }
	keyed := map[string]admission.Key{"account": {}, "all": admission.Everyone}
	cfg := admission.Config{Limits: []throttr.Limit{hour("all")}, OnlyPlans: true, Keyed: keyed}
	known := admission.MustPlan(hour("account"), hour("all"))
	misspelt := admission.MustPlan(hour("acount"), hour("all"))
	flight, err := known.WithInFlight(exports)
	require.NoError(t, err)
	gate := newGate(t, cfg)
	require.NoError(t, gate.Check(known))
	require.NoError(t, gate.Check(new(admission.Plan)))
	require.NoError(t, newGate(t, admission.Config{OnlyPlans: true}).Check(misspelt), "all count by the key of the request")
	require.ErrorContains(t, gate.Check(misspelt), `limit "acount" has no key of its own`)
	require.ErrorContains(t, gate.Check(flight), `limit "exports" is on requests in flight`)
	r := admission.Request{Addr: "192.0.2.1", Keys: map[string]admission.Key{"account": {Text: "ann"}}}
	for _, test := range []struct {
		plan *admission.Plan
		want admission.Verdict
	}{
		{nil, admission.Serve}, {known, admission.Serve}, {misspelt, admission.Misconfigured},
		{new(admission.Plan), admission.Serve}, {known, admission.Deny}, {misspelt, admission.Misconfigured},
	} {
		r.Plan = test.plan
		d := gate.Admit(t.Context(), r)
		require.Equal(t, test.want, d.Verdict())
		require.Equal(t, test.want == admission.Misconfigured, errors.Is(d.Err, throttr.ErrConfig))
	}
	cfg.Places = newPlaces(t, memory.New())
	require.ErrorContains(t, newGate(t, cfg).Check(flight), `limit "exports" has no key of its own`)
	cfg.InFlight = exports
	for text, limits := range map[string][]throttr.Limit{`"exports"`: {hour("account")}, `"acount"`: {hour("acount")}} {
		cfg.Limits = limits
		_, err = admission.New(throttr.NewRateLimit(memory.New()), cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, "limit "+text+" has no key of its own")
	}
	cfg.OnlyPlans = false
	newGate(t, cfg)
}

// Peek and Reset say so if they are not told what to look at, and leave alone what others share.
func TestPeekAndResetNeedTheKeysOfLimits(t *testing.T) {
	cfg := admission.Config{
		Limits:   []throttr.Limit{{Name: "all", Max: 2, Scale: time.Second}, {Name: "tenant", Max: 2, Scale: time.Minute}, {Name: "hour", Max: 2, Scale: time.Hour}},
		InFlight: exports, Places: newPlaces(t, memory.New()),
		Keyed: map[string]admission.Key{"all": admission.Everyone, "tenant": {}, "exports": {}},
	}
	gate := newGate(t, cfg)
	of := admission.Request{Addr: "192.0.2.1", Keys: map[string]admission.Key{"tenant": {Text: "t"}, "exports": {Text: "e"}}}
	all := of
	all.Keys = map[string]admission.Key{"all": admission.Everyone, "tenant": {Text: "t"}, "exports": {}}
	defer gate.Admit(t.Context(), all).Done()
	defer gate.Admit(t.Context(), of).Done()
	require.Equal(t, []uint64{2, 2, 2, 1}, counts(t, gate, of))
	require.Equal(t, []uint64{2, 2, 2}, counts(t, gate, all))
	for _, keys := range []map[string]admission.Key{nil, {"tenant": {}}, {"exports": {Text: "e"}}} {
		r := admission.Request{Addr: "192.0.2.1", Keys: keys}
		_, err := gate.Peek(t.Context(), r)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, "has no key of its own, as others have")
		require.ErrorIs(t, gate.Reset(t.Context(), r), throttr.ErrConfig)
	}
	for _, skip := range []bool{false, true} { // then no limit applies
		unkeyed := newGate(t, admission.Config{SkipEmptyKey: skip})
		_, err := unkeyed.Peek(t.Context(), admission.Request{})
		require.Equal(t, !skip, errors.Is(err, throttr.ErrConfig), err)
		require.Equal(t, !skip, errors.Is(unkeyed.Reset(t.Context(), admission.Request{}), throttr.ErrConfig))
		counts(t, unkeyed, admission.Request{Addr: admission.Addr("@")})
	}
	require.NoError(t, gate.Reset(t.Context(), of))
	require.Equal(t, []uint64{2, 0, 0}, counts(t, gate, all), "the window of everyone goes on")
	require.NoError(t, gate.Reset(t.Context(), all))
	require.Equal(t, []uint64{0, 0, 0}, counts(t, gate, all))
	r := admission.Request{Addr: "192.0.2.1", Plan: admission.MustPlan(throttr.Limit{Name: "hour", Max: 2, Scale: time.Hour})}
	r.Keys = map[string]admission.Key{"exports": {}}
	require.Equal(t, []uint64{0}, counts(t, gate, r), "only the limits of the plan need keys")

	// Admit counts what it is not told by the address.
	d := gate.Admit(t.Context(), admission.Request{Addr: "192.0.2.1"})
	defer d.Done()
	require.Equal(t, "192.0.2.1", d.Outcomes[1].Key)

	_, err := newGateOn(t, flaky(memory.New(), "minute", errDown), admission.Config{}).Peek(t.Context(), request("k"))
	require.ErrorIs(t, err, errDown)
}

// As hits, requests go from the shortest limit to the longest, up to the first that denies.
func TestHitsGoUpToTheLimitThatDenies(t *testing.T) {
	hour := func(most uint64) throttr.Limit { return throttr.Limit{Name: "hour", Max: most, Scale: time.Hour} }
	gate := newGate(t, admission.Config{Limits: []throttr.Limit{hour(2), minute}, CountRefusals: true})
	for i, want := range [][]uint64{{1, 1}, {2, 2}, {3, 3}, {4, 3}, {5, 3}} { // in minute and hour
		d := gate.Admit(t.Context(), request("k"))
		require.Equal(t, i < 2, d.Allowed)
		require.Equal(t, i < 2, d.Strictest.Allowed)
		require.Equal(t, i > 2, d.Strictest.Name == "minute")
		require.Equal(t, want, counts(t, gate, request("k")))
	}
	gate = newGate(t, admission.Config{Limits: []throttr.Limit{hour(3), minute}})
	require.Equal(t, "hour", gate.Admit(t.Context(), request("k")).Strictest.Name, "of two with the same remaining, the longer one")
}

// Takes are free if they are refused, and hits are not. A limit in which a request costs nothing does not apply to it.
func TestCostsAreCounted(t *testing.T) {
	const ok, deny = admission.Serve, admission.Deny
	for name, test := range map[string]struct {
		hits     bool
		costs    []uint64
		verdicts []admission.Verdict
		count    uint64
	}{
		"they add up":         {false, []uint64{2, 2, 1, 1}, []admission.Verdict{ok, deny, ok, deny}, 3},
		"0":                   {false, []uint64{0, 3, 1, 0}, []admission.Verdict{ok, ok, deny, ok}, 3},
		"more than the limit": {false, []uint64{4, 0, 3, 1}, []admission.Verdict{deny, ok, ok, deny}, 3},
		"the largest":         {false, []uint64{1<<63 - 1, 1}, []admission.Verdict{deny, ok}, 1},
		"hits add up":         {true, []uint64{2, 2, 1}, []admission.Verdict{ok, deny, deny}, 5},
		"hits of 0":           {true, []uint64{0, 3, 0}, []admission.Verdict{ok, ok, ok}, 3},
		"hits of 0 beyond it": {true, []uint64{3, 1, 0}, []admission.Verdict{ok, deny, ok}, 4},
		"a hit of more":       {true, []uint64{4, 1}, []admission.Verdict{deny, ok}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			gate := newGate(t, admission.Config{CountRefusals: test.hits})
			var verdicts []admission.Verdict
			for _, n := range test.costs {
				d := gate.Admit(t.Context(), costing("k", n))
				verdicts = append(verdicts, d.Verdict())
				require.Equal(t, n == 0 || n > minute.Max, d.LimitField() == "", "then no store was asked")
			}
			require.Equal(t, test.verdicts, verdicts)
			require.Equal(t, []uint64{test.count}, counts(t, gate, request("k")))
		})
	}
}
