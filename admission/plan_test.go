package admission_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/memory"
)

func TestAPlanHasItsLimitsInOrder(t *testing.T) {
	hour := throttr.Limit{Name: "hour", Max: 2, Scale: time.Hour}
	limits := []throttr.Limit{hour, minute}
	gate := newGate(t, admission.Config{Limits: limits})
	require.Equal(t, hour, limits[0], "New does not sort the caller's slice")
	limits[0].Max = 0
	require.Equal(t, admission.Serve, gate.Admit(t.Context(), request("k")).Verdict(), "and has a copy")
	require.Equal(t, []throttr.Limit{minute, hour}, admission.MustPlan(hour, minute).Limits())
}

// A page that says what remains, and until when, has no year 1, unless nothing says when a window would end. While time
// passes, too, that is when the next one starts.
func TestPeekSaysWhenAWindowEndsThatNobodyHasUsed(t *testing.T) {
	cfg := admission.Config{Limits: []throttr.Limit{
		minute, {Name: "aligned", Max: 3, Scale: time.Hour, Algorithm: throttr.AlignedWindow}, {Name: "month", Max: 3, Calendar: throttr.Month},
	}}
	synctest.Test(t, func(t *testing.T) { // it is 2000-01-01T00:00:00Z
		gate := newGate(t, cfg)
		time.Sleep(24*time.Hour + 20*time.Minute)
		var ends []time.Time
		for range 2 {
			outcomes, err := gate.Peek(t.Context(), request("k"))
			require.NoError(t, err)
			for _, o := range outcomes {
				ends = append(ends, o.ResetAt.UTC())
			}
			require.Equal(t, 40*time.Minute, outcomes[1].ResetAfter)
			gate.Admit(t.Context(), request("k"))
		}
		require.Zero(t, ends[0])
		require.Equal(t, []time.Time{time.Date(2000, 1, 2, 1, 0, 0, 0, time.UTC), time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC)}, ends[1:3])
		require.Equal(t, ends[1:3], ends[4:])
	})
	outcomes, err := newGate(t, cfg).Peek(t.Context(), request("k"))
	require.NoError(t, err)
	for _, o := range outcomes {
		require.Zero(t, o.ResetAt.Nanosecond(), o.ResetAt)
	}
}

// It is 2009-01-01T00:00:00Z. In March, clocks are set forward.
func TestFieldsOfCalendarLimitsHaveTheLengthAndEndOfTheirWindows(t *testing.T) {
	clock := backendtest.NewClock()
	store := memory.New(memory.WithClock(clock.Now), memory.WithCleanPeriod(0))
	defer store.Close()
	month := throttr.Limit{Name: "month", Max: 2, Calendar: throttr.Month, Zone: "Europe/Berlin"}
	gate := newGateOn(t, store, admission.Config{Limits: []throttr.Limit{month, {Name: "day", Max: 2, Calendar: throttr.Day}, minute}})
	for _, step := range []struct {
		advance              time.Duration
		policy, limit, after string
	}{
		{0, "2678400", `"minute";r=2;t=60, "day";r=1;t=86400, "month";r=1;t=2674800`, ""},
		{24 * time.Hour, "2678400", `"minute";r=2;t=60, "day";r=1;t=86400, "month";r=0;t=2588400`, ""},
		{time.Minute, "2678400", `"minute";r=3;t=60, "day";r=1;t=86340, "month";r=0;t=2588340`, "2588340"},
		{58*24*time.Hour - time.Minute, "2674800", `"minute";r=2;t=60, "day";r=1;t=86400, "month";r=1;t=2671200`, ""},
	} {
		clock.Advance(step.advance)
		d := gate.Admit(t.Context(), request("k"))
		require.Equal(t, `"minute";q=3;w=60, "day";q=2;w=86400, "month";q=2;w=`+step.policy, d.PolicyField())
		require.Equal(t, step.limit, d.LimitField())
		require.Equal(t, step.after, d.RetryAfterField())
	}
}
