package httplimit_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

//evidence:http The fields are those of the draft
func TestFieldsAreThoseOfTheDraft(t *testing.T) {
	s := newSite(t, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerHour(50), httplimit.PerSecond(2)},
		Legacy: httplimit.LegacySeconds,
	})
	type fields map[string]string
	for i, step := range []struct {
		advance time.Duration
		status  int
		fields  fields
	}{
		{0, 202, fields{
			"Ratelimit": `"second";r=1;t=1, "hour";r=49;t=3600`, "X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "1",
		}},
		{time.Millisecond, 202, fields{
			"Ratelimit": `"second";r=0;t=1, "hour";r=48;t=3600`, "X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1",
		}},
		{time.Millisecond, 429, fields{
			"Ratelimit": `"second";r=0;t=1, "hour";r=48;t=3600`, "X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1", "Retry-After": "1",
		}},
		{998 * time.Millisecond, 202, fields{
			"Ratelimit": `"second";r=1;t=1, "hour";r=47;t=3599`, "X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "1",
		}},
	} {
		s.clock.Advance(step.advance)
		res := s.get(alice)
		require.Equal(t, step.status, res.StatusCode, i)
		got := fields{}
		for name, values := range res.Header {
			require.Len(t, values, 1)
			got[name] = values[0]
		}
		step.fields["Ratelimit-Policy"] = `"second";q=2;w=1, "hour";q=50;w=3600`
		if step.status == 202 {
			step.fields["X-Handler"] = "was here"
		} else {
			step.fields["Content-Type"] = "text/plain; charset=utf-8"
			step.fields["X-Content-Type-Options"] = "nosniff"
			step.fields["Cache-Control"] = "no-store"
		}
		require.Equal(t, step.fields, got, i)
	}
}

func TestPolicyFieldNamesEveryLimit(t *testing.T) {
	for name, test := range map[string]struct {
		limits []throttr.Limit
		field  string
	}{
		"one":                       {[]throttr.Limit{httplimit.PerDay(7)}, `"day";q=7;w=86400`},
		"all limits":                {[]throttr.Limit{httplimit.PerMinute(1), httplimit.PerHour(0)}, `"minute";q=1;w=60, "hour";q=0;w=3600`},
		"seconds are rounded up":    {[]throttr.Limit{{Name: "x", Max: 9, Scale: 1500 * time.Millisecond}}, `"x";q=9;w=2`},
		"to 1 at least":             {[]throttr.Limit{{Name: "x", Max: 9, Scale: time.Millisecond}}, `"x";q=9;w=1`},
		"quotes and backslashes":    {[]throttr.Limit{{Name: `say "\o/"`, Max: 9, Scale: time.Second}}, `"say \"\\o/\"";q=9;w=1`},
		"separators are characters": {[]throttr.Limit{{Name: `a, b;q=1`, Max: 9, Scale: time.Second}}, `"a, b;q=1";q=9;w=1`},
		"the largest":               {[]throttr.Limit{{Name: "x", Max: 999_999_999_999_999, Scale: 1 << 62}}, `"x";q=999999999999999;w=4611686019`},
	} {
		t.Run(name, func(t *testing.T) {
			res := newSite(t, httplimit.Config{Limits: test.limits}).get(alice)
			require.Equal(t, []string{test.field}, res.Header.Values("RateLimit-Policy"))
		})
	}
	res := newSite(t, httplimit.Config{Limits: []throttr.Limit{{Name: `"\`, Max: 9, Scale: time.Minute}}}).get(alice)
	require.Equal(t, `"\"\\";r=8;t=60`, res.Header.Get("RateLimit"))
}

// It is 2009-01-01T00:00:00Z. In March, clocks are set forward.
func TestFieldsOfCalendarLimitsHaveTheLengthAndEndOfTheirWindows(t *testing.T) {
	month := throttr.Limit{Name: "month", Max: 2, Calendar: throttr.Month, Zone: "Europe/Berlin"}
	s := newSite(t, httplimit.Config{Limits: []throttr.Limit{month, {Name: "day", Max: 2, Calendar: throttr.Day}, httplimit.PerMinute(2)}})
	fields := func(policy, limit, after string) {
		t.Helper()
		res := s.get(alice)
		require.Equal(t, policy, res.Header.Get("RateLimit-Policy"))
		require.Equal(t, limit, res.Header.Get("RateLimit"))
		require.Equal(t, after, res.Header.Get("Retry-After"))
	}
	january, march := `"minute";q=2;w=60, "day";q=2;w=86400, "month";q=2;w=2678400`, `"minute";q=2;w=60, "day";q=2;w=86400, "month";q=2;w=2674800`
	fields(january, `"minute";r=1;t=60, "day";r=1;t=86400, "month";r=1;t=2674800`, "")
	s.clock.Advance(24 * time.Hour)
	fields(january, `"minute";r=1;t=60, "day";r=1;t=86400, "month";r=0;t=2588400`, "")
	s.clock.Advance(time.Minute)
	fields(january, `"minute";r=2;t=60, "day";r=1;t=86340, "month";r=0;t=2588340`, "2588340")
	s.clock.Advance(58*24*time.Hour - time.Minute)
	fields(march, `"minute";r=1;t=60, "day";r=1;t=86400, "month";r=1;t=2671200`, "")
}

func TestRetryAfterIsRoundedUpToSeconds(t *testing.T) {
	for _, test := range []struct {
		window, passed time.Duration
		want           int
	}{
		{time.Minute, 0, 60},
		{time.Minute, 1, 60},
		{time.Minute, time.Second, 59},
		{time.Minute, time.Minute - time.Second, 1},
		{time.Minute, time.Minute - 1, 1},
		{time.Millisecond, 0, 1},
		{1500 * time.Millisecond, 0, 2},
		{1500 * time.Millisecond, 400 * time.Millisecond, 2},
	} {
		s := newSite(t, httplimit.Config{Limits: []throttr.Limit{{Name: "x", Max: 1, Scale: test.window}}})
		s.get(alice)
		s.clock.Advance(test.passed)
		res := s.get(alice)
		require.Equal(t, 429, res.StatusCode, test)
		require.Equal(t, test.want, number(t, res.Header, "Retry-After"), test)
		require.Equal(t, `"x";r=0;t=`+strconv.Itoa(test.want), res.Header.Get("RateLimit"), test)
		s.clock.Advance(time.Duration(test.want) * time.Second)
		require.Equal(t, 202, s.get(alice).StatusCode, "served after Retry-After: %v", test)
	}
}

func TestLegacyFieldsHaveSecondsOrATime(t *testing.T) {
	for _, test := range []struct {
		legacy httplimit.Legacy
		reset  string
	}{{httplimit.LegacyNone, ""}, {httplimit.LegacySeconds, "60"}} {
		s := newSite(t, httplimit.Config{Legacy: test.legacy})
		require.Equal(t, test.reset, s.get(alice).Header.Get("X-RateLimit-Reset"))
	}
	s := newSite(t, httplimit.Config{Legacy: httplimit.LegacyUnix})
	require.EqualValues(t, s.clock.Now().Unix()+60, number(t, s.get(alice).Header, "X-RateLimit-Reset"), "on the clock of the backend")
	s.clock.Advance(time.Hour + time.Nanosecond)
	require.EqualValues(t, s.clock.Now().Unix()+61, number(t, s.get(alice).Header, "X-RateLimit-Reset"), "rounded up")
}

func TestHideFieldsLeavesNoFields(t *testing.T) {
	s := newSite(t, httplimit.Config{HideFields: true, Limits: []throttr.Limit{httplimit.PerHour(0)}})
	res := s.get(alice)
	require.Equal(t, 429, res.StatusCode)
	require.Empty(t, res.Header.Get("Retry-After"), "waiting does not help")
	require.NotContains(t, res.Header, "Ratelimit")
	require.NotContains(t, res.Header, "Ratelimit-Policy")
}

func TestStackedMiddlewareSetsFieldsOfBoth(t *testing.T) {
	limiter := throttr.NewRateLimit(memory.New())
	stack := http.Handler(http.NotFoundHandler())
	for _, l := range []throttr.Limit{{Name: "account", Max: 5, Scale: time.Hour}, {Name: "address", Max: 9, Scale: time.Hour}} {
		limit, err := httplimit.New(limiter, httplimit.Config{Limits: []throttr.Limit{l}})
		require.NoError(t, err)
		stack = limit(stack)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Vary", "Origin")
	stack.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, []string{`"address";q=9;w=3600`, `"account";q=5;w=3600`}, w.Header().Values("RateLimit-Policy"))
	require.Equal(t, []string{`"address";r=8;t=3600`, `"account";r=4;t=3600`}, w.Header().Values("RateLimit"))
	require.Equal(t, "Origin", w.Header().Get("Vary"))
}

func TestDeniedAndFailedRequestsGetTheConfiguredAnswer(t *testing.T) {
	type want struct {
		status                   int
		contentType, body, retry string
		served                   int
	}
	const text, problem = "text/plain; charset=utf-8", "application/problem+json"
	const reduced = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,"violated-policies":[]}` + "\n"
	down := always(errDown)
	for name, test := range map[string]struct {
		fails          func(time.Duration) error
		denied, failed httplimit.Answer
		policy         throttr.Policy
		want           want
	}{
		"denied": {want: want{429, text, "Too many requests. Try again in 60 s.\n", "60", 0}},
		"denied, a problem": {denied: httplimit.DenyProblem, want: want{429, problem,
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
				`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["minute"]}` + "\n", "60", 0}},
		"denied, abnormal usage": {denied: httplimit.DenyAbnormalUsage, want: want{429, problem,
			`{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
				`"title":"Request not satisfied due to detection of abnormal request pattern","status":429,"violated-policies":["minute"]}` + "\n", "60", 0}},
		"denied, but served": {denied: httplimit.Serve, want: want{202, "", "", "", 1}},
		"denied, custom answer": {
			denied: func(w http.ResponseWriter, r *http.Request, d httplimit.Decision, _ http.Handler) {
				http.Error(w, d.Strictest.Name+" "+w.Header().Get("RateLimit"), http.StatusTeapot)
			},
			want: want{418, text, `minute "minute";r=0;t=60` + "\n", "60", 0},
		},
		"failed":          {fails: down, want: want{202, "", "", "", 1}},
		"failed, refused": {fails: down, failed: httplimit.Refuse, want: want{503, text, "Service unavailable. Try again in 5 s.\n", "5", 0}},
		"failed, a problem": {fails: down, failed: httplimit.RefuseProblem, want: want{503, problem,
			reduced, "5", 0}},
		"failed, custom answer": {
			fails: down,
			failed: func(w http.ResponseWriter, r *http.Request, d httplimit.Decision, next http.Handler) {
				w.Header().Set("Retry-After", "30")
				httplimit.Refuse(w, r, d, next)
			},
			want: want{503, text, "Service unavailable. Try again in 30 s.\n", "30", 0},
		},
		"policy allows":          {fails: down, failed: httplimit.Refuse, policy: throttr.AllowHits, want: want{202, "", "", "", 1}},
		"policy denies":          {fails: down, policy: throttr.DenyHits, want: want{503, text, "Service unavailable. Try again in 1 s.\n", "1", 0}},
		"policy denies, problem": {fails: down, policy: throttr.DenyHits, denied: httplimit.DenyProblem, want: want{503, problem, reduced, "1", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := httplimit.Config{OnDenied: test.denied, OnFailure: test.failed}
			if test.fails == nil {
				test.fails = always(nil)
				cfg.Limits = []throttr.Limit{httplimit.PerMinute(1)}
			}
			s := newBrokenSite(t, cfg, test.fails, throttr.WithPolicy(test.policy))
			if cfg.Limits != nil {
				s.get(bob)
				s.served = 0
			}
			res := s.get(bob)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, test.want, want{res.StatusCode, res.Header.Get("Content-Type"), string(body), res.Header.Get("Retry-After"), s.served})
			if test.want.contentType == problem {
				require.True(t, json.Valid(body))
			}

			head := s.get(bob, func(r *http.Request) { r.Method = http.MethodHead })
			if test.want.status == 418 {
				return // The custom answer ignores the method.
			}
			body, err = io.ReadAll(head.Body)
			require.NoError(t, err)
			require.Empty(t, body, "HEAD")
			require.Equal(t, res.StatusCode, head.StatusCode)
			require.Equal(t, res.Header, head.Header)
		})
	}
}

func TestRateLimitFieldIsOmittedAfterFailure(t *testing.T) {
	for _, policy := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits} {
		s := newBrokenSite(t, httplimit.Config{Legacy: httplimit.LegacySeconds}, always(errDown), throttr.WithPolicy(policy))
		res := s.get(alice)
		require.Equal(t, 202, res.StatusCode)
		require.Equal(t, http.Header{"X-Handler": {"was here"}, "Ratelimit-Policy": {`"minute";q=3;w=60`}}, res.Header)
		require.True(t, s.found)
		require.True(t, s.decision.Allowed)
		require.Zero(t, s.decision.Strictest)
		if policy == throttr.ReturnError {
			require.ErrorIs(t, s.decision.Err, errDown)
			require.Empty(t, s.decision.Outcomes)
		} else {
			require.NoError(t, s.decision.Err)
			require.True(t, s.decision.Outcomes[0].Degraded)
		}
	}
}

func TestOtherLimitsApplyIfOneFails(t *testing.T) {
	minuteFails := func(scale time.Duration) error {
		if scale == time.Minute {
			return errDown
		}
		return nil
	}
	for name, answer := range map[string]httplimit.Answer{"serve": nil, "refuse": httplimit.Refuse} {
		t.Run(name, func(t *testing.T) {
			s := newBrokenSite(t, httplimit.Config{
				Limits:    []throttr.Limit{httplimit.PerSecond(9), httplimit.PerMinute(2), httplimit.PerHour(2)},
				OnFailure: answer, CountRefusals: true,
			}, minuteFails)
			want := 202
			if answer != nil {
				want = 503
			}
			require.Equal(t, []int{want, want}, s.statuses(2, alice))
			if answer == nil {
				require.ErrorIs(t, s.decision.Err, errDown)
				require.Equal(t, "hour", s.decision.Strictest.Name)
			}
			res := s.get(alice)
			require.Equal(t, 429, res.StatusCode)
			require.Equal(t, `"second";r=6;t=1, "hour";r=0;t=3600`, res.Header.Get("RateLimit"))
			require.Equal(t, "3600", res.Header.Get("Retry-After"))
		})
	}
}

// What could not be counted because its context has ended is not served, whatever the answer to failures is.
func TestARequestWhoseContextHasEndedIsNotServed(t *testing.T) {
	for name, answer := range map[string]httplimit.Answer{"serve": httplimit.Serve, "refuse": httplimit.Refuse} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, httplimit.Config{OnFailure: answer})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			res := s.get(alice, func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.Equal(t, 499, res.StatusCode)
			require.Empty(t, res.Header)

			ctx, cancel = context.WithDeadline(t.Context(), time.Unix(1, 0))
			defer cancel()
			res = s.get(alice, func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.Equal(t, 503, res.StatusCode, "the client may still be there")
			require.Zero(t, s.served)
		})
	}
}
