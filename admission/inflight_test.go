package admission_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

var exports = inflight.Limit{Name: "exports", Max: 1, Lease: time.Second}

// newPlaces returns a limiter that is closed at the end of the test.
func newPlaces(t *testing.T, b throttr.Backend, opts ...inflight.Option) *inflight.Limiter {
	l := inflight.New(b, append([]inflight.Option{inflight.WithLogger(nil)}, opts...)...)
	t.Cleanup(func() { l.Close() })
	return l
}

// The place comes first: its release leaves nothing behind.
func TestAPlaceIsTakenBeforeARequestIsCounted(t *testing.T) {
	for _, hits := range []bool{false, true} {
		gate := newGate(t, admission.Config{InFlight: exports, Places: newPlaces(t, memory.New()), CountRefusals: hits})
		first := gate.Admit(t.Context(), request("k"))
		require.Equal(t, admission.Serve, first.Verdict())
		require.True(t, first.Hold.Valid())
		require.Equal(t, `"minute";q=3;w=60, "exports";q=1;qu="concurrent-requests"`, first.PolicyField())
		require.Equal(t, `"minute";r=2;t=60`, first.LimitField())

		second := gate.Admit(t.Context(), request("k"))
		require.Equal(t, admission.Deny, second.Verdict())
		require.Nil(t, second.Hold)
		require.Equal(t, []string{"exports"}, names(second))
		require.Equal(t, "Too many requests. Try again in 1 s.", second.Text())
		require.Equal(t, `"exports";r=0;t=1`, second.LimitField())
		require.Equal(t, first.PolicyField(), second.PolicyField())
		require.Equal(t, admission.Serve, gate.Admit(t.Context(), request("another")).Verdict())
		require.Equal(t, []uint64{1, 1}, counts(t, gate, request("k")), "what has no place is not counted")

		second.Done()
		copied, _ := admission.FromContext(first.Context())
		copied.Done()
		third := gate.Admit(t.Context(), request("k"))
		first.Done()
		first.Done()
		require.True(t, third.Hold.Valid(), "it is not the first one's")
		third.Done()

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		left := gate.Admit(gone, request("k"))
		require.Equal(t, admission.Canceled, left.Verdict())
		require.Nil(t, left.Hold)
		require.Equal(t, []uint64{2, 0}, counts(t, gate, request("k")), "of a client that has left, nothing is counted")

		denied := gate.Admit(t.Context(), costing("k", 9))
		require.Equal(t, []string{"minute"}, names(denied))
		require.Nil(t, denied.Hold)
		inUse := counts(t, gate, request("k"))[1]
		require.Zero(t, inUse, "what a limit denies holds no place, even before Done")
		denied.Done()
	}
}

// A plan may have its own limit on requests in flight. Others have that of the Config.
func TestPlansHaveLimitsInFlight(t *testing.T) {
	places := newPlaces(t, memory.New())
	plan := func(l inflight.Limit, limits ...throttr.Limit) *admission.Plan {
		p, err := admission.MustPlan(limits...).WithInFlight(l)
		require.NoError(t, err)
		return p
	}
	many := plan(inflight.Limit{Name: "exports", Max: 2})
	require.False(t, many.Empty())
	require.Empty(t, many.Limits())
	gate := newGate(t, admission.Config{InFlight: exports, Places: places})
	for i, step := range []struct {
		plan          *admission.Plan
		verdict       admission.Verdict
		policy, limit string
	}{
		{admission.MustPlan(minute), admission.Serve, `"minute";q=3;w=60, "exports";q=1;qu="concurrent-requests"`, `"minute";r=2;t=60`},
		{admission.MustPlan(minute), admission.Deny, `"minute";q=3;w=60, "exports";q=1;qu="concurrent-requests"`, `"exports";r=0;t=1`},
		{many, admission.Serve, `"exports";q=2;qu="concurrent-requests"`, ""}, // a customer of another plan has the second place
		{plan(inflight.Limit{Name: "all", Max: throttr.Unlimited}), admission.Serve, "", ""},
		{plan(inflight.Limit{Name: "never"}, minute), admission.Deny, `"minute";q=3;w=60, "never";q=0;qu="concurrent-requests"`, `"never";r=0`},
	} {
		d := gate.Admit(t.Context(), planned("k", step.plan))
		require.Equal(t, step.verdict, d.Verdict(), i)
		require.Equal(t, step.policy, d.PolicyField(), i)
		require.Equal(t, step.limit, d.LimitField(), i)
	}

	gate = newGate(t, admission.Config{
		InFlight: exports, Places: places, NoPlace: admission.Unavailable, Limits: []throttr.Limit{}, PartitionKey: true, PlainKeys: true,
	})
	require.Equal(t, `"exports";q=1;qu="concurrent-requests";pk=:eA==:`, gate.Admit(t.Context(), request("x")).PolicyField())
	d := gate.Admit(t.Context(), request("x"))
	require.Equal(t, `"exports";r=0;t=1;pk=:eA==:`, d.LimitField())
	require.Equal(t, "Service unavailable. Try again in 1 s.", d.Text())

	gate = newGate(t, admission.Config{})
	d = gate.Admit(t.Context(), planned("k", many))
	require.Equal(t, admission.Misconfigured, d.Verdict(), "a limit that would never hold")
	require.ErrorContains(t, d.Err, "no Config.Places")
}

// The policy of the Limiter comes first. What it can't decide is what could not be counted.
func TestPlacesThatCantBeDecided(t *testing.T) {
	away := fmt.Errorf("%w: connection refused", throttr.ErrUnavailable)
	for name, test := range map[string]struct {
		err    error
		policy inflight.Policy
		cfg    admission.Config
		want   admission.Verdict
	}{
		"served":            {away, inflight.Refuse, admission.Config{}, admission.Serve},
		"failed closed":     {away, inflight.Refuse, admission.Config{FailClosed: true}, admission.Unavailable},
		"full":              {throttr.ErrFull, inflight.Refuse, admission.Config{}, admission.Unavailable},
		"share":             {away, inflight.Share, admission.Config{FailClosed: true}, admission.Serve},
		"a mistake":         {throttr.ErrRange, inflight.Admit, admission.Config{}, admission.Misconfigured},
		"it became useless": {throttr.ErrUnsupported, inflight.Admit, admission.Config{}, admission.Misconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			var away atomic.Bool
			store := failingWhile(&away, memory.New(), test.err)
			test.cfg.InFlight, test.cfg.Places = exports, newPlaces(t, store, inflight.WithPolicy(test.policy))
			gate := newGate(t, test.cfg)
			away.Store(true)
			defer away.Store(false) // Close need not wait
			d := gate.Admit(t.Context(), request("k"))
			require.Equal(t, test.want, d.Verdict(), d.Err)
			if test.policy == inflight.Share {
				require.True(t, d.Hold.Degraded())
				require.NoError(t, d.Err)
				require.Equal(t, admission.Deny, gate.Admit(t.Context(), request("k")).Verdict(), "the share is one")
				d.Done()
			} else {
				require.Nil(t, d.Hold)
				require.ErrorIs(t, d.Err, test.err)
				require.True(t, d.Allowed)
			}
			require.EqualValues(t, 2, d.Outcomes[0].Remaining, "the limits apply even so")
			for range 2 {
				gate.Admit(t.Context(), request("k")).Done()
			}
			require.Equal(t, []string{"minute"}, names(gate.Admit(t.Context(), request("k"))))
		})
	}
}

// The handler's context ends when the place is lost, and its decision says so.
func TestTheContextEndsWhenThePlaceIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
		gate := newGate(t, admission.Config{InFlight: exports, Places: newPlaces(t, failingWhile(&away, store, errDown))})
		type key struct{}
		d := gate.Admit(context.WithValue(t.Context(), key{}, "value"), request("k"))
		defer d.Done()
		ctx := d.Context()
		require.Equal(t, "value", ctx.Value(key{}))
		time.Sleep(time.Hour)
		require.NoError(t, ctx.Err(), "places are renewed")
		away.Store(true)
		<-ctx.Done()
		require.Equal(t, inflight.ErrLost, context.Cause(ctx))
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		require.Equal(t, inflight.ErrLost, context.Cause(child))
		found, ok := admission.FromContext(ctx)
		require.True(t, ok)
		require.False(t, found.Hold.Valid())
	})
}

// The caller of Admit gets no Decision, so it can't call Done.
func TestAPlaceIsReleasedIfCountingPanics(t *testing.T) {
	panics := true
	gate := newGate(t, admission.Config{InFlight: exports, Places: newPlaces(t, memory.New())},
		throttr.WithObserver(func(context.Context, throttr.Event) {
			if panics {
				panic(errors.New("observer"))
			}
		}))
	require.Panics(t, func() { gate.Admit(t.Context(), request("k")) })
	panics = false
	require.Zero(t, counts(t, gate, request("k"))[1])

	for _, store := range []throttr.Backend{memory.New(), testkit.Broken(memory.New(), nil)} {
		places := newPlaces(t, store, inflight.WithObserver(func(context.Context, inflight.Event) { panic(errors.New("observer")) }))
		gate = newGate(t, admission.Config{InFlight: exports, Places: places})
		require.Panics(t, func() { gate.Admit(t.Context(), request("k")) })
		require.Zero(t, places.Stats().InUse)
		require.Zero(t, counts(t, gate, request("k"))[0])
	}
}
