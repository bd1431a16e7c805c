package httplimit_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

func TestSeveralLimitsAreAppliedShortestFirst(t *testing.T) {
	second, hour := httplimit.PerSecond(2), httplimit.PerHour(3)
	type step struct {
		advance  time.Duration
		statuses []int
		strict   string
		used     []uint64 // counts of the windows of second and hour
	}
	for name, test := range map[string]struct {
		limits []throttr.Limit
		steps  []step
	}{
		"requests that the short one denies do not use up the long one": {
			limits: []throttr.Limit{second, hour},
			steps: []step{
				{statuses: []int{202, 202, 429, 429, 429}, strict: "second", used: []uint64{5, 2}},
				{advance: time.Second, statuses: []int{202, 429}, strict: "hour", used: []uint64{2, 4}},
				{advance: time.Second, statuses: []int{429, 429, 429}, strict: "second", used: []uint64{3, 6}},
				{advance: time.Hour, statuses: []int{202, 202, 429}, strict: "second", used: []uint64{3, 2}},
			},
		},
		"their order in the configuration does not matter": {
			limits: []throttr.Limit{hour, second},
			steps: []step{
				{statuses: []int{202, 202, 429, 429, 429}, strict: "second", used: []uint64{5, 2}},
			},
		},
		"of two with the same remaining, the longer one is the stricter": {
			limits: []throttr.Limit{httplimit.PerSecond(3), hour},
			steps: []step{
				{statuses: []int{202, 202}, strict: "hour", used: []uint64{2, 2}},
			},
		},
		"a limit of 0 denies": {
			limits: []throttr.Limit{httplimit.PerSecond(0), hour},
			steps:  []step{{statuses: []int{429, 429}, strict: "second", used: []uint64{0, 0}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var last httplimit.Decision
			s := newSite(t, httplimit.Config{Limits: test.limits, CountRefusals: true, OnDenied: func(w http.ResponseWriter, r *http.Request, d httplimit.Decision, next http.Handler) {
				last = d
				httplimit.Deny(w, r, d, next)
			}})
			for i, step := range test.steps {
				s.clock.Advance(step.advance)
				for _, want := range step.statuses {
					status := s.get(alice).StatusCode
					require.Equal(t, want, status, i)
					if status == 202 {
						last = s.decision
					}
				}
				require.Equal(t, step.strict, last.Strictest.Name, i)
				require.Equal(t, last.Allowed, last.Strictest.Allowed, i)
				require.Equal(t, step.used, []uint64{s.count(t, "192.0.2.1", second), s.count(t, "192.0.2.1", hour)}, i)
			}
		})
	}
}

func TestSkippedRequestsAreServedUncountedWithoutFields(t *testing.T) {
	for name, cfg := range map[string]httplimit.Config{
		"Skip":                 {Skip: func(*http.Request) bool { return true }},
		"a plan with no limit": {Plan: func(*http.Request) (*httplimit.Plan, error) { return new(httplimit.Plan), nil }},
		"an empty key":         {Key: func(*http.Request) string { return "" }, SkipEmptyKey: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Legacy = httplimit.LegacySeconds
			s := newSite(t, cfg)
			for range 10 {
				res := s.get(alice)
				require.Equal(t, 202, res.StatusCode)
				require.Equal(t, http.Header{"X-Handler": {"was here"}}, res.Header)
			}
			require.False(t, s.found)
		})
	}
}

func TestRequestsOfOneKeyShareALimit(t *testing.T) {
	long := strings.Repeat("k", 129)
	digest := sha256.Sum256([]byte(long))
	for name, test := range map[string]struct {
		key  func(*http.Request) string
		a, b func(*http.Request)
		same bool
	}{
		"empty keys of one address": {
			key: func(r *http.Request) string { return r.Header.Get("User") },
			a:   func(*http.Request) {}, b: header("Other", "x"), same: true,
		},
		"empty keys of others": {
			key: func(r *http.Request) string { return r.Header.Get("User") },
			a:   func(*http.Request) {}, b: func(r *http.Request) { r.RemoteAddr = bob },
		},
		"a key that is an address": {
			key: func(r *http.Request) string { return r.Header.Get("User") },
			a:   func(*http.Request) {}, b: header("User", "192.0.2.1"),
		},
		"different keys":  {key: func(r *http.Request) string { return r.Header.Get("User") }, a: header("User", "a"), b: header("User", "b")},
		"empty and other": {key: func(r *http.Request) string { return r.Header.Get("User") }, a: func(*http.Request) {}, b: header("User", "b")},
		"long and equal":  {key: func(r *http.Request) string { return long }, a: func(*http.Request) {}, b: header("User", "b"), same: true},
		"long keys":       {key: func(r *http.Request) string { return long + r.Header.Get("User") }, a: header("User", "a"), b: header("User", "b")},
		"method and path": {key: func(r *http.Request) string { return r.Method + " " + r.URL.Path }, a: func(*http.Request) {}, b: func(r *http.Request) { r.Method = "PUT" }},
		"a long key and its digest": {
			key: func(r *http.Request) string { return r.Header.Get("User") },
			a:   header("User", long), b: header("User", "h"+base64.RawURLEncoding.EncodeToString(digest[:])),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, httplimit.Config{Key: test.key})
			require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, alice, test.a))
			want := []int{202}
			if test.same {
				want = []int{429}
			}
			require.Equal(t, want, s.statuses(1, alice, test.b))
		})
	}
}

func TestALongKeyIsNotStored(t *testing.T) {
	for _, plain := range []bool{false, true} {
		var stored string
		seen := throttr.WithObserver(func(_ context.Context, e throttr.Event) { stored = e.Key })
		s := newSite(t, httplimit.Config{Key: func(*http.Request) string { return strings.Repeat("k", 1<<20) }, PlainKeys: plain}, seen)
		s.get(alice)
		require.Less(t, len(stored), 80)
		require.Len(t, s.decision.Strictest.Key, 1<<20, "the handler sees the key unchanged")
	}
}

func TestPlanOfARequestDecidesItsLimits(t *testing.T) {
	plans := map[string]*httplimit.Plan{
		"pro":      httplimit.MustPlan(httplimit.PerMinute(5)),
		"internal": httplimit.MustPlan(),
	}
	s := newSite(t, httplimit.Config{Plan: func(r *http.Request) (*httplimit.Plan, error) { return plans[r.Header.Get("Plan")], nil }})
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, alice), "an unknown plan: Limits apply")
	require.Equal(t, []int{202, 202, 429}, s.statuses(3, alice, header("Plan", "pro")), "a change of plans keeps the count")
	require.Equal(t, []int{202, 202, 202, 202, 202, 429}, s.statuses(6, bob, header("Plan", "pro")))
	require.Equal(t, []int{202, 202, 202}, s.statuses(3, bob, header("Plan", "internal")))
	require.Equal(t, []throttr.Limit{httplimit.PerSecond(1), httplimit.PerHour(2)},
		httplimit.MustPlan(httplimit.PerHour(2), httplimit.PerSecond(1)).Limits())
}

func TestCostOfARequestIsCounted(t *testing.T) {
	for name, test := range map[string]struct {
		costs    []uint64
		statuses []int
	}{
		"it adds up":                           {[]uint64{2, 1, 1}, []int{202, 202, 429}},
		"0 is not counted":                     {[]uint64{0, 0, 0, 0, 3, 0}, []int{202, 202, 202, 202, 202, 202}},
		"0 is denied once the limit is over":   {[]uint64{3, 1, 0}, []int{202, 429, 429}},
		"more than the limit does not count":   {[]uint64{4, 1}, []int{429, 202}},
		"the largest cost":                     {[]uint64{1<<63 - 1, 1}, []int{429, 202}},
		"a negative cost that was converted":   {[]uint64{1<<64 - 1, 1}, []int{500, 202}},
		"a request denied for its cost counts": {[]uint64{2, 2, 1}, []int{202, 429, 429}},
		"cost 0 is denied in a full window":    {[]uint64{3, 3, 0}, []int{202, 429, 429}},
	} {
		t.Run(name, func(t *testing.T) {
			var cost uint64
			s := newSite(t, httplimit.Config{Cost: func(*http.Request, throttr.Limit) uint64 { return cost }, CountRefusals: true})
			for i, c := range test.costs {
				cost = c
				require.Equal(t, test.statuses[i], s.get(alice).StatusCode, i)
			}
		})
	}
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	limiter := throttr.NewRateLimit(memory.New())
	limits := func(l ...throttr.Limit) httplimit.Config { return httplimit.Config{Limits: l} }
	for name, test := range map[string]struct {
		cfg  httplimit.Config
		text string
	}{
		"no limits":         {httplimit.Config{}, "Limits is empty"},
		"a key of nobody":   {httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, KeyOf: map[string]httplimit.KeyFunc{"day": httplimit.Everyone}}, `"day"`},
		"a key of no name":  {httplimit.Config{Plan: func(*http.Request) (*httplimit.Plan, error) { return nil, nil }, KeyOf: map[string]httplimit.KeyFunc{"": httplimit.Everyone}}, `""`},
		"no function":       {httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, KeyOf: map[string]httplimit.KeyFunc{"hour": nil}}, `"hour"`},
		"Hops, no Header":   {httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, Addr: httplimit.AddrConfig{Hops: 1}}, "no Header"},
		"hits given back":   {httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, CountRefusals: true, GiveBack: func(*http.Request, int) bool { return true }}, "CountRefusals"},
		"no name":           {limits(throttr.Limit{Max: 1, Scale: time.Second}), "has no name"},
		"too long a Burst":  {limits(throttr.Limit{Name: "a", Max: 1, Burst: 1e15, Scale: time.Second, Algorithm: throttr.TokenBucket}), "a Burst of 1000000000000000"},
		"a long name":       {limits(throttr.Limit{Name: strings.Repeat("x", 65), Max: 1, Scale: time.Second}), "at most 64"},
		"an umlaut":         {limits(throttr.Limit{Name: "für", Max: 1, Scale: time.Second}), "ASCII"},
		"a line feed":       {limits(throttr.Limit{Name: "a\nb", Max: 1, Scale: time.Second}), "ASCII"},
		"a DEL":             {limits(throttr.Limit{Name: "a\x7f", Max: 1, Scale: time.Second}), "ASCII"},
		"a name twice":      {limits(httplimit.PerHour(1), httplimit.PerHour(2)), `two limits are named "hour"`},
		"no window":         {limits(throttr.Limit{Name: "x", Max: 1}), "0s is less than 1ms"},
		"a negative window": {limits(throttr.Limit{Name: "x", Max: 1, Scale: -1}), "-1ns is less than 1ms"},
		"a vast limit":      {limits(httplimit.PerHour(1e15)), "at most 999999999999999"},
		"an unknown Legacy": {httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, Legacy: 3}, "Legacy 3"},
	} {
		t.Run(name, func(t *testing.T) {
			limit, err := httplimit.New(limiter, test.cfg)
			require.ErrorIs(t, err, throttr.ErrConfig)
			require.ErrorContains(t, err, test.text)
			require.Nil(t, limit)
		})
	}
	require.Panics(t, func() { httplimit.MustPlan(throttr.Limit{}) })
}

func TestNewCopiesLimits(t *testing.T) {
	limits := []throttr.Limit{httplimit.PerHour(2), httplimit.PerSecond(2)}
	s := newSite(t, httplimit.Config{Limits: limits})
	require.Equal(t, "hour", limits[0].Name, "New does not sort the caller's slice")
	limits[0].Max, limits[1].Max = 0, 0
	require.Equal(t, []int{202, 202, 429}, s.statuses(3, alice))
}

// In shadow, clients notice nothing, the counts are those of enforced limits, and observers are told.
func TestShadowServesAndReportsWhatItWouldDeny(t *testing.T) {
	for name, test := range map[string]struct {
		cfg    httplimit.Config
		fails  error
		events []string
		count  uint64
	}{
		"takes":     {httplimit.Config{}, nil, []string{"allowed second", "allowed minute", "allowed second", "allowed minute", "denied second", "denied second"}, 2},
		"hits":      {httplimit.Config{CountRefusals: true}, nil, []string{"allowed second", "allowed minute", "allowed second", "allowed minute", "denied second", "denied second"}, 2},
		"failures":  {httplimit.Config{OnFailure: httplimit.Refuse}, errDown, nil, 0},
		"full":      {httplimit.Config{}, throttr.ErrFull, nil, 0},
		"a mistake": {httplimit.Config{}, throttr.ErrRange, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			test.cfg.Shadow, test.cfg.Legacy = true, httplimit.LegacySeconds
			test.cfg.Limits = []throttr.Limit{httplimit.PerSecond(2), httplimit.PerMinute(3)}
			s := newBrokenSite(t, test.cfg, always(test.fails), throttr.WithObserver(func(ctx context.Context, e throttr.Event) {
				require.True(t, admission.InShadow(ctx))
				if e.Err == nil {
					events = append(events, e.Kind.String()+" "+e.Limit.Name)
				}
			}))
			for i := range 4 {
				res := s.get(alice)
				require.Equal(t, 202, res.StatusCode)
				require.Equal(t, http.Header{"X-Handler": {"was here"}}, res.Header)
				require.True(t, s.found && s.decision.Shadow)
				if test.events != nil {
					require.Equal(t, i < 2, s.decision.Allowed)
				}
			}
			require.Equal(t, test.events, events)
			require.Equal(t, test.count, s.count(t, "192.0.2.1", httplimit.PerMinute(3)))
		})
	}
	require.False(t, admission.InShadow(t.Context()))
}
