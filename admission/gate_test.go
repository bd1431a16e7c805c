package admission_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/inflight"
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
	require.Panics(t, func() { admission.MustPlan(throttr.Limit{}) })
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
