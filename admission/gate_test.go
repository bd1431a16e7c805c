package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

var minute = throttr.Limit{Name: "minute", Max: 3, Scale: time.Minute}

// newGate returns a Gate of 3 a minute, over a memory backend, also in virtual time.
func newGate(t *testing.T, cfg admission.Config, opts ...throttr.Option) *admission.Gate {
	t.Helper()
	backend := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { backend.Close() })
	return newGateOn(t, backend, cfg, opts...)
}

func newGateOn(t *testing.T, backend throttr.Backend, cfg admission.Config, opts ...throttr.Option) *admission.Gate {
	t.Helper()
	if cfg.Limits == nil {
		cfg.Limits = []throttr.Limit{minute}
	}
	gate, err := admission.New(throttr.NewRateLimit(backend, opts...), cfg)
	require.NoError(t, err)
	return gate
}

// request returns a request of a key.
func request(key string) admission.Request { return admission.Request{Key: admission.Key{Text: key}} }

// costing returns a request of a key that costs n.
func costing(key string, n uint64) admission.Request {
	r := request(key)
	r.Cost = func(throttr.Limit) uint64 { return n }
	return r
}

// planned returns a request of a key with a plan.
func planned(key string, p *admission.Plan) admission.Request {
	r := request(key)
	r.Plan = p
	return r
}

// lateTimer is a context whose deadline has passed, and whose timer has not noticed.
type lateTimer struct{ context.Context }

func (lateTimer) Deadline() (time.Time, bool) { return time.Now(), true }

var errDown = errors.New("the backend is down")

// What a service does with a request must not depend on the transport, so it is decided here.
func TestVerdictOfEachOutcome(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	type want struct {
		verdict admission.Verdict
		status  int
		text    string
		retry   time.Duration
	}
	for name, test := range map[string]struct {
		ctx    context.Context
		err    error // of the backend
		cfg    admission.Config
		policy throttr.Policy
		n      uint64
		want   want
	}{
		"served":          {want: want{admission.Serve, 200, "", 0}},
		"never granted":   {n: 4, want: want{admission.Deny, 429, "Too many requests.", throttr.Never}},
		"failed":          {err: errDown, want: want{admission.Serve, 200, "", 5 * time.Second}},
		"failed closed":   {err: errDown, cfg: admission.Config{FailClosed: true}, want: want{admission.Unavailable, 503, "Service unavailable. Try again in 5 s.", 5 * time.Second}},
		"full":            {err: throttr.ErrFull, want: want{admission.Unavailable, 503, "Service unavailable. Try again in 5 s.", 5 * time.Second}},
		"policy allows":   {err: errDown, policy: throttr.AllowHits, cfg: admission.Config{FailClosed: true}, want: want{admission.Serve, 200, "", 0}},
		"policy denies":   {err: errDown, policy: throttr.DenyHits, want: want{admission.Unavailable, 503, "Service unavailable. Try again in 1 s.", time.Second}},
		"closed":          {err: throttr.ErrClosed, policy: throttr.DenyHits, want: want{admission.Unavailable, 503, "Service unavailable. Try again in 5 s.", 5 * time.Second}},
		"value size":      {err: throttr.ErrValueSizeMismatch, policy: throttr.DenyHits, want: want{admission.Misconfigured, 500, "The rate limit is misconfigured.", 5 * time.Second}},
		"a mistake":       {err: throttr.ErrRange, policy: throttr.AllowHits, want: want{admission.Misconfigured, 500, "The rate limit is misconfigured.", 5 * time.Second}},
		"canceled":        {ctx: canceled, err: context.Canceled, want: want{admission.Canceled, 499, "", 5 * time.Second}},
		"expired":         {ctx: expired, err: context.DeadlineExceeded, want: want{admission.Canceled, 499, "", 5 * time.Second}},
		"a late timer":    {ctx: lateTimer{t.Context()}, err: context.DeadlineExceeded, want: want{admission.Canceled, 499, "", 5 * time.Second}},
		"expired, denied": {ctx: expired, err: errDown, policy: throttr.DenyHits, want: want{admission.Canceled, 499, "", 5 * time.Second}},
		"the backend is":  {err: context.Canceled, cfg: admission.Config{FailClosed: true}, want: want{admission.Unavailable, 503, "Service unavailable. Try again in 5 s.", 5 * time.Second}},
	} {
		for _, hits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				ctx := t.Context()
				if test.ctx != nil {
					ctx = test.ctx
				}
				test.cfg.CountRefusals = hits
				gate := newGateOn(t, testkit.Broken(memory.New(), test.err), test.cfg, throttr.WithPolicy(test.policy))
				d := gate.Admit(ctx, costing("k", max(test.n, 1)))
				defer d.Done()
				require.Equal(t, test.want, want{d.Verdict(), d.Verdict().HTTPStatus(), d.Text(), d.RetryAfter}, d.Err)
				fields := map[string]string{}
				d.AddFields(func(name, value string) { fields[name] = value })
				require.Equal(t, d.PolicyField(), fields["RateLimit-Policy"])
				_, waits := fields["Retry-After"]
				require.Equal(t, test.want.verdict != admission.Serve && test.want.retry < throttr.Never, waits)
			})
		}
	}
}

// The zero Decision serves nobody, and its methods do nothing.
func TestMethodsOfTheZeroDecision(t *testing.T) {
	d := new(admission.Decision)
	require.Equal(t, admission.Unavailable, d.Verdict())
	require.Equal(t, "unknown", admission.Verdict(99).String())
	require.Equal(t, context.Background(), d.Context())
	require.Empty(t, d.PolicyField()+d.LimitField()+d.RetryAfterField())
	d.AddFields(func(name, value string) { t.Errorf("%s: %s", name, value) })
	require.Equal(t, "Service unavailable. Try again in 0 s.", d.Text())
	require.Empty(t, d.Denied())
	require.NoError(t, d.GiveBack(t.Context()))
	require.True(t, d.GiveBackLater())
	require.ErrorIs(t, d.Commit(t.Context(), "minute", 1), throttr.ErrConfig)
	d.Done()
	o := admission.Outcome{Result: throttr.Result{Allowed: true}}
	require.Zero(t, o.Left())
	require.Empty(t, o.Quota())
}

// Of several limits, one whose store is away leaves no request uncounted that is to be refused then. One in which the
// request costs nothing does not apply to it.
func TestEachLimitThatAppliesFailsClosed(t *testing.T) {
	away := throttr.Limit{Name: "away", Max: 9, Scale: time.Minute}
	for _, hits := range []bool{false, true} {
		cfg := admission.Config{Limits: []throttr.Limit{away, minute}, FailClosed: true, CountRefusals: hits}
		gate := newGateOn(t, flaky(memory.New(), "away", throttr.ErrUnavailable), cfg)
		for want, all := range map[admission.Verdict]map[string]uint64{
			admission.Unavailable: {"away": 1, "minute": 1}, admission.Serve: {"away": 0, "minute": 1},
		} {
			require.Equal(t, want, gate.Admit(t.Context(), costs(all)).Verdict(), "hits: %v", hits)
		}
		require.Equal(t, admission.Unavailable, gate.Admit(t.Context(), costs(map[string]uint64{"away": 1})).Verdict())
	}
}

func TestATimeIsReadable(t *testing.T) {
	for want, seconds := range map[string]int64{
		"0 s": 0, "1 s": 1, "120 s": 120, "3 min": 121, "120 min": 7200, "3 h": 7201, "42 h": 150_286, "48 h": 172_800,
		"3 days": 172_801, "31 days": 31 * 86_400,
	} {
		require.Equal(t, want, admission.WaitText(seconds))
	}
}

// Clients that were denied together do not return together, and none too early.
func TestJitterSpreadsRetryAfter(t *testing.T) {
	for _, cost := range []uint64{1, 4} {
		gate := newGate(t, admission.Config{Jitter: time.Minute})
		for range 3 {
			require.Zero(t, gate.Admit(t.Context(), request("k")).RetryAfter)
		}
		seen := map[time.Duration]bool{}
		for range 200 {
			d := gate.Admit(t.Context(), costing("k", cost))
			later := d.RetryAfter - d.Strictest.RetryAfter
			seen[later] = true
			if cost > 3 {
				require.Equal(t, throttr.Never, d.RetryAfter)
			}
			require.GreaterOrEqual(t, later, time.Duration(0))
			require.LessOrEqual(t, later, time.Minute)
		}
		require.Equal(t, cost == 1, len(seen) > 100)
	}
}

func TestNewRefusesInvalidConfig(t *testing.T) {
	limiter := throttr.NewRateLimit(memory.New())
	places := newPlaces(t, memory.New())
	with := func(limits ...throttr.Limit) admission.Config { return admission.Config{Limits: limits} }
	flight := func(l inflight.Limit) admission.Config {
		return admission.Config{Limits: []throttr.Limit{minute}, InFlight: l, Places: places}
	}
	a := throttr.Limit{Name: "a", Max: 1, Scale: time.Second}
	for text, test := range map[string]struct {
		cfg   admission.Config
		match error
	}{
		"Limits is empty":                                                  {},
		"Jitter is 0 to 24h0m0s, not -1ns":                                 {cfg: admission.Config{Limits: []throttr.Limit{a}, Jitter: -1}},
		"Jitter is 0 to 24h0m0s, not 2562047h47m":                          {cfg: admission.Config{Limits: []throttr.Limit{a}, Jitter: math.MaxInt64}},
		`NoPlace is Deny or Unavailable, not "canceled"`:                   {cfg: admission.Config{Limits: []throttr.Limit{a}, NoPlace: admission.Canceled}},
		"a limit has no name: 1 in 1s":                                     {cfg: with(throttr.Limit{Max: 1, Scale: time.Second})},
		"a Burst of 1000000000000000":                                      {cfg: with(throttr.Limit{Name: "a", Max: 1, Burst: 1e15, Scale: time.Second, Algorithm: throttr.TokenBucket})},
		"a Max of 1000000000000000":                                        {cfg: with(throttr.Limit{Name: "a", Max: 1e15, Scale: time.Second})},
		"at most 64":                                                       {with(throttr.Limit{Name: strings.Repeat("x", 65), Max: 1, Scale: time.Second}), throttr.ErrRange},
		`two limits are named "a"`:                                         {cfg: with(a, a)},
		"0s is less than 1ms":                                              {with(throttr.Limit{Name: "a", Max: 1}), throttr.ErrScale},
		"a limit has no name: 3 at a time":                                 {cfg: flight(inflight.Limit{Max: 3})},
		`two limits are named "minute"`:                                    {cfg: flight(inflight.Limit{Name: "minute", Max: 3})},
		`limit "b" has a Max of 1000000000000000`:                          {cfg: flight(inflight.Limit{Name: "b", Max: 1e15})},
		`limit "b": throttr: Lease 1ns is out of`:                          {flight(inflight.Limit{Name: "b", Max: 1, Lease: 1}), throttr.ErrRange},
		"limit \"b\\n\"":                                                   {flight(inflight.Limit{Name: "b\n", Max: 1}), throttr.ErrRange},
		`limit "exports" is on requests in flight, and there is no Places`: {cfg: admission.Config{InFlight: exports}},
		"Places: inflight: the backend keeps no":                           {admission.Config{Limits: []throttr.Limit{a}, Places: newPlaces(t, window.Unimplemented{})}, throttr.ErrUnsupported},
	} {
		_, err := admission.New(limiter, test.cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, text)
		if test.match != nil {
			require.ErrorIs(t, err, test.match)
		}
	}
	_, err := admission.New(throttr.NewRateLimit(window.Unimplemented{}), with(a))
	require.ErrorIs(t, err, throttr.ErrConfig)
	require.ErrorIs(t, err, throttr.ErrUnsupported)
	require.PanicsWithValue(t, "admission: New: limiter is nil", func() { admission.New(nil, admission.Config{}) })
	require.Panics(t, func() { admission.MustPlan(throttr.Limit{Name: "a", Max: 1}) })
}

func TestSeveralLimitsThatDenyAreNamed(t *testing.T) {
	gate := newGate(t, admission.Config{Limits: []throttr.Limit{
		minute, {Name: "hour", Max: 3, Scale: time.Hour}, {Name: "day", Max: 9, Scale: 24 * time.Hour},
	}})
	require.Empty(t, gate.Admit(t.Context(), costing("k", 3)).Denied())
	d := gate.Admit(t.Context(), request("k"))
	require.Equal(t, []string{"minute", "hour"}, names(d))
	require.Equal(t, "hour", d.Strictest.Name, "the one with the longest RetryAfter")
	require.Greater(t, d.RetryAfter, 59*time.Minute)
}

// A limit in shadow counts. Clients notice nothing of it, also if they cost nothing in it, or it can't be counted.
func TestALimitInShadowDeniesNoRequest(t *testing.T) {
	shadow := throttr.Limit{Name: "shadow", Max: 1, Scale: time.Hour, Shadow: true}
	for _, hits := range []bool{false, true} {
		var kinds []throttr.EventKind
		observer := throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Limit.Shadow {
				kinds = append(kinds, e.Kind)
			}
		})
		cfg := admission.Config{Limits: []throttr.Limit{minute, shadow}, CountRefusals: hits, FailClosed: true}
		gate := newGate(t, cfg, observer)
		for i, n := range []uint64{1, 1, 0} {
			d := gate.Admit(t.Context(), costs(map[string]uint64{"shadow": n}))
			require.Equal(t, admission.Serve, d.Verdict(), "%v, request %d", d.Err, i)
			require.Equal(t, `"minute";q=3;w=60`, d.PolicyField())
			require.Len(t, d.Outcomes, 1)
		}
		require.Equal(t, []throttr.EventKind{throttr.EventAllowed, throttr.EventWouldDeny}, kinds[:2])
		require.Equal(t, []string{"minute"}, names(gate.Admit(t.Context(), request("k"))))
		cfg.Limits = []throttr.Limit{shadow}
		err := newGate(t, cfg).Admit(t.Context(), request("k")).GiveBack(t.Context())
		require.Equal(t, hits, errors.Is(err, throttr.ErrUnsupported), err)
		d := newGateOn(t, testkit.Broken(memory.New(), errDown), cfg).Admit(t.Context(), request("k"))
		require.Equal(t, admission.Serve, d.Verdict(), d.Err)
	}
}

// names returns the names of the limits that have denied.
func names(d *admission.Decision) (all []string) {
	for _, o := range d.Denied() {
		all = append(all, o.Name)
	}
	return all
}

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

// A client that paces itself by the header fields alone is never denied, also while a fallback decides by the share of
// a process.
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
			testkit.Bubble(t, fmt.Sprint(a, " ", b), func(t *testing.T) {
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

// With one limit in the fields, as in those of X-RateLimit, a client that waits for its end is not denied by another
// one either: of those of which as much remains, it is the one that ends later.
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
