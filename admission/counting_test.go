package admission_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

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
