package admission_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

var limitItem = regexp.MustCompile(`"[^"]*";r=(\d+);t=(\d+)`)

// pauseOf returns for how long a client waits by the RateLimit field: if nothing is left of a limit, until all of it is
// there again.
func pauseOf(t *testing.T, field string) (pause time.Duration) {
	t.Helper()
	items := limitItem.FindAllStringSubmatch(field, -1)
	require.NotEmpty(t, items, field)
	for _, i := range items {
		seconds, err := strconv.Atoi(i[2])
		require.NoError(t, err)
		if i[1] == "0" {
			pause = max(pause, time.Duration(seconds)*time.Second)
		}
	}
	return pause
}

// A client that paces itself by the header fields alone is never denied, also while a fallback decides by the share of a
// process.
func TestAClientThatGoesByTheFieldsIsNeverDenied(t *testing.T) {
	limit := func(a throttr.Algorithm, name string, most uint64, scale time.Duration, burst uint64) throttr.Limit {
		if a != throttr.TokenBucket {
			burst = 0
		}
		return throttr.Limit{Name: name, Max: most, Scale: scale, Burst: burst, Algorithm: a}
	}
	for _, a := range limits.Algorithms {
		for _, b := range append([]throttr.Algorithm{0}, limits.Algorithms...) {
			all := []throttr.Limit{limit(a, "a", 3, 1700*time.Millisecond, 8)}
			if b != 0 {
				all = append(all, limit(b, "b", 7, 7*time.Second, 2))
			}
			t.Run(fmt.Sprint(a, " ", b), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
					defer store.Close()
					cfg := admission.Config{Limits: all}
					shared := []throttr.Option{throttr.WithFallback(store), throttr.WithProcesses(2)}
					for _, gate := range []*admission.Gate{newGateOn(t, store, cfg), newGateOn(t, testkit.Broken(store, errDown), cfg, shared...)} {
						time.Sleep(time.Hour + 1234567*time.Microsecond)
						begun := time.Now()
						for range 200 {
							d := gate.Admit(t.Context(), request("k"))
							require.True(t, d.Allowed, "%s after %v", d.LimitField(), time.Since(begun))
							time.Sleep(pauseOf(t, d.LimitField()) + 10*time.Millisecond)
						}
						require.Less(t, time.Since(begun), 45*time.Minute)
					}
				})
			})
		}
	}
}

// While a fallback decides, all fields speak of the share of a process. The policy is the same whether a limit or the
// RateLimit says that it is a token bucket.
func TestThePolicyIsThatOfTheShareThatDecides(t *testing.T) {
	for _, hits := range []bool{false, true} {
		cfg := admission.Config{CountRefusals: hits, Limits: []throttr.Limit{
			{Name: "hour", Max: 100, Scale: time.Hour}, {Name: "small", Max: 1, Scale: 2 * time.Hour},
			{Name: "bucket", Max: 10, Scale: 24 * time.Hour, Burst: 50, Algorithm: throttr.TokenBucket},
		}}
		gate := newGateOn(t, testkit.Broken(memory.New(), errDown), cfg, throttr.WithFallback(memory.New()), throttr.WithProcesses(2))
		d := gate.Admit(t.Context(), request("k"))
		require.Equal(t, `"hour";q=50;w=3600, "small";q=1;w=7200, "bucket";q=25;w=432000`, d.PolicyField())
		require.Regexp(t, `^"hour";r=49;t=3600, "small";r=0;t=7200, "bucket";r=24;t=`, d.LimitField())
	}
	d := newGateOn(t, testkit.Broken(memory.New(), errDown), admission.Config{}, throttr.WithPolicy(throttr.AllowHits)).Admit(t.Context(), request("k"))
	require.Equal(t, `"minute";q=3;w=60`, d.PolicyField())

	gate := newGate(t, admission.Config{CountRefusals: true, Limits: []throttr.Limit{
		{Name: "none", Scale: time.Millisecond}, {Name: "bucket", Max: 10, Scale: time.Second, Burst: 50},
	}}, throttr.WithAlgorithm(throttr.TokenBucket))
	d = gate.Admit(t.Context(), request("k"))
	require.Equal(t, `"none";q=0;w=1, "bucket";q=50;w=5`, d.PolicyField(), "the second one is not asked for")
}

// With one limit in the fields, as in those of X-RateLimit, a client that waits for its end is not denied by another one
// either: of those of which as much remains, it is the one that ends later.
func TestAClientThatGoesByTheStrictestIsNotDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, admission.Config{Limits: []throttr.Limit{
			{Name: "minute", Max: 1, Scale: time.Minute}, {Name: "hour", Max: 1, Scale: time.Hour, Algorithm: throttr.AlignedWindow},
		}})
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 10*time.Second))) // the hour ends first
		for _, want := range []string{"minute", "hour"} {
			d := gate.Admit(t.Context(), request("k"))
			require.True(t, d.Allowed)
			require.Equal(t, want, d.Strictest.Name)
			time.Sleep(d.Strictest.Left())
		}
	})
}

func TestFieldsHaveThePartitionOnDemand(t *testing.T) {
	with := func(limits ...throttr.Limit) admission.Config { return admission.Config{Limits: limits} }
	bucket := func(most uint64, scale time.Duration, burst uint64) throttr.Limit {
		return throttr.Limit{Name: "bucket", Max: most, Scale: scale, Burst: burst, Algorithm: throttr.TokenBucket}
	}
	for _, test := range []struct {
		cfg           admission.Config
		policy, limit string
	}{
		{admission.Config{}, `"minute";q=3;w=60`, `"minute";r=2;t=60`},
		{admission.Config{PartitionKey: true, PlainKeys: true}, `"minute";q=3;w=60;pk=:a2V5:`, `"minute";r=2;t=60;pk=:a2V5:`},
		{admission.Config{PartitionKey: true}, `"minute";q=3;w=60;pk=:LHDhK3oGRvkiefQn:`, `"minute";r=2;t=60;pk=:LHDhK3oGRvkiefQn:`},
		{with(minute, throttr.Limit{Name: "all", Max: throttr.Unlimited, Scale: time.Hour}), `"minute";q=3;w=60`, `"minute";r=2;t=60`},
		{with(throttr.Limit{Name: "hour", Max: 7, Scale: time.Hour}, minute), `"minute";q=3;w=60, "hour";q=7;w=3600`, `"minute";r=2;t=60, "hour";r=6;t=3600`},
		{with(throttr.Limit{Name: "none", Scale: time.Hour}), `"none";q=0;w=3600`, `"none";r=0`},
		{with(bucket(10, time.Second, 50)), `"bucket";q=50;w=5`, `"bucket";r=49;t=1`}, // w: an empty one fills; t: this one does
		{with(bucket(1000, time.Minute, 10)), `"bucket";q=10;w=1`, `"bucket";r=9;t=1`},
		{with(bucket(0, time.Hour, 10)), `"bucket";q=0;w=3600`, `"bucket";r=0`},
		{with(throttr.Limit{Name: "x", Max: 9, Scale: 1500 * time.Millisecond}), `"x";q=9;w=2`, `"x";r=8;t=2`},
		{with(throttr.Limit{Name: "x", Max: 9, Scale: 10 * time.Millisecond}), `"x";q=9;w=1`, `"x";r=8;t=1`},
		{with(throttr.Limit{Name: `say "\o/"`, Max: 9, Scale: time.Second}), `"say \"\\o/\"";q=9;w=1`, `"say \"\\o/\"";r=8;t=1`},
		{with(throttr.Limit{Name: "x", Max: 999_999_999_999_999, Scale: 1 << 62}), `"x";q=999999999999999;w=4611686019`, `"x";r=999999999999998`},
	} {
		d := newGate(t, test.cfg).Admit(t.Context(), request("key"))
		require.Equal(t, test.policy, d.PolicyField())
		require.Equal(t, test.limit, d.LimitField())
		require.Empty(t, d.RetryAfterField())
		d.Outcomes = append(d.Outcomes, admission.Outcome{Name: "mine", Result: throttr.Result{Allowed: true, Limit: 5, Remaining: 4}})
		require.Equal(t, test.limit, d.LimitField(), "what the program has added is of no limit")
	}
}

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
		require.Equal(t, step.policy, fmt.Sprintf("%.0f", d.Outcomes[2].Scale.Seconds()))
	}
}
