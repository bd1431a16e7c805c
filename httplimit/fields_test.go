package httplimit_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
)

func TestFieldsAreThoseOfTheDraft(t *testing.T) {
	s := newSite(t, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerHour(50), httplimit.PerSecond(2)},
		Legacy: httplimit.LegacySeconds,
	}, nil)
	fields := func(limit, left, reset string, more ...string) http.Header {
		h := http.Header{
			"Ratelimit-Policy": {`"second";q=2;w=1, "hour";q=50;w=3600`}, "Ratelimit": {limit},
			"X-Ratelimit-Limit": {"2"}, "X-Ratelimit-Remaining": {left}, "X-Ratelimit-Reset": {reset},
		}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	for i, step := range []struct {
		advance time.Duration
		status  int
		header  http.Header
	}{
		{0, 202, fields(`"second";r=1;t=1, "hour";r=49;t=3600`, "1", "1", "X-Handler", "was here")},
		{time.Millisecond, 202, fields(`"second";r=0;t=1, "hour";r=48;t=3600`, "0", "1", "X-Handler", "was here")},
		{time.Millisecond, 429, fields(`"second";r=0;t=1, "hour";r=48;t=3600`, "0", "1", "Retry-After", "1",
			"Content-Type", "text/plain; charset=utf-8", "X-Content-Type-Options", "nosniff", "Cache-Control", "no-store")},
		{998 * time.Millisecond, 202, fields(`"second";r=1;t=1, "hour";r=47;t=3599`, "1", "1", "X-Handler", "was here")},
	} {
		s.clock.Advance(step.advance)
		res := get(s, alice)
		require.Equal(t, step.status, res.StatusCode, i)
		require.Equal(t, step.header, res.Header, i)
	}
}

// X-RateLimit-Reset is the same moment as seconds and as a time, by the clock of the backend, whatever the algorithm
// is.
func TestResetAsATimeIsResetInSeconds(t *testing.T) {
	reset := func(s *site) int {
		n, err := strconv.Atoi(get(s, alice).Header.Get("X-RateLimit-Reset"))
		require.NoError(t, err)
		return n
	}
	for _, a := range limits.Algorithms {
		var resets [2][]int
		for i, legacy := range []httplimit.Legacy{httplimit.LegacySeconds, httplimit.LegacyUnix} {
			minute := []throttr.Limit{{Name: "x", Max: 3, Scale: time.Minute, Algorithm: a}}
			s := newSite(t, httplimit.Config{Limits: minute, Legacy: legacy}, nil)
			for range 5 {
				resets[i] = append(resets[i], reset(s)-i*int(s.clock.Now().Unix()))
				s.clock.Advance(time.Second)
			}
		}
		require.Equal(t, resets[0], resets[1], a)
	}
	s := newSite(t, httplimit.Config{Legacy: httplimit.LegacyUnix}, nil)
	s.clock.Advance(time.Nanosecond)
	require.EqualValues(t, s.clock.Now().Unix()+61, reset(s), "rounded up")
	require.Empty(t, get(newSite(t, httplimit.Config{}, nil), alice).Header.Get("X-RateLimit-Reset"))
}

func TestFieldsThatSayNothingAreLeftOut(t *testing.T) {
	none := []throttr.Limit{httplimit.PerHour(0)}
	s := newSite(t, httplimit.Config{HideFields: true, Legacy: httplimit.LegacySeconds, Limits: none}, nil)
	res := get(s, alice)
	require.Equal(t, 429, res.StatusCode)
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Reset"} {
		require.Empty(t, res.Header.Get(name), "waiting does not help")
	}
	shadow := httplimit.PerMinute(3)
	shadow.Shadow = true
	for _, cfg := range []httplimit.Config{{Limits: []throttr.Limit{shadow}}, {Skip: func(*http.Request) bool { return true }}} {
		cfg.Legacy = httplimit.LegacySeconds
		s = newSite(t, cfg, nil)
		require.Equal(t, []int{202, 202, 202}, s.statuses(3, alice))
		require.Equal(t, http.Header{"X-Handler": {"was here"}}, get(s, alice).Header)
		require.Equal(t, cfg.Skip == nil, s.found && s.decision.Allowed)
	}
	for _, policy := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits} {
		s = newSite(t, httplimit.Config{Legacy: httplimit.LegacySeconds}, errDown, throttr.WithPolicy(policy))
		require.Equal(t, http.Header{"X-Handler": {"was here"}, "Ratelimit-Policy": {`"minute";q=3;w=60`}}, get(s, alice).Header)
		require.True(t, s.found && s.decision.Allowed)
		require.Equal(t, policy == throttr.ReturnError, errors.Is(s.decision.Err, errDown))
	}
}

// What outer middleware has said about the response of a handler is not true of a denial. What could not be counted
// because its context has ended is not served, whatever the answer to failures is.
func TestDeniedAndFailedRequestsGetTheConfiguredAnswer(t *testing.T) {
	left, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0)) // whose client may still be there
	defer cancel()
	type want struct {
		status                   int
		contentType, body, retry string
	}
	const text, problem = "text/plain; charset=utf-8", "application/problem+json"
	const reduced = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,"violated-policies":[]}` + "\n"
	const quota = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["minute"]}` + "\n"
	const abnormal = `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",` +
		`"title":"Request not satisfied due to detection of abnormal request pattern","status":429,"violated-policies":["minute"]}` + "\n"
	served := want{202, "", "", ""}
	custom := func(w http.ResponseWriter, r *http.Request, d httplimit.Decision, next http.Handler) {
		if d.Strictest.Name != "" {
			http.Error(w, d.Strictest.Name+" "+w.Header().Get("RateLimit"), http.StatusTeapot)
			return
		}
		w.Header().Set("Retry-After", "30")
		httplimit.Refuse(w, r, d, next)
	}
	for name, test := range map[string]struct {
		err            error // of the backend; without one, the limit is exceeded
		denied, failed httplimit.Answer
		policy         throttr.Policy
		ctx            context.Context
		want           want
	}{
		"denied":                 {want: want{429, text, "Too many requests. Try again in 60 s.\n", "60"}},
		"denied, a problem":      {denied: httplimit.DenyProblem, want: want{429, problem, quota, "60"}},
		"denied, abnormal usage": {denied: httplimit.DenyAbnormalUsage, want: want{429, problem, abnormal, "60"}},
		"denied, but served":     {denied: httplimit.Serve, want: served},
		"denied, custom answer":  {denied: custom, want: want{418, text, `minute "minute";r=0;t=60, "hour";r=6;t=3600` + "\n", "60"}},
		"failed":                 {err: errDown, want: served},
		"failed, refused":        {err: errDown, failed: httplimit.Refuse, want: want{503, text, "Service unavailable. Try again in 5 s.\n", "5"}},
		"failed, a problem":      {err: errDown, failed: httplimit.RefuseProblem, want: want{503, problem, reduced, "5"}},
		"failed, custom answer":  {err: errDown, failed: custom, want: want{503, text, "Service unavailable. Try again in 30 s.\n", "30"}},
		"full":                   {err: throttr.ErrFull, want: want{503, text, "Service unavailable. Try again in 5 s.\n", "5"}},
		"full, served":           {err: throttr.ErrFull, failed: httplimit.Serve, want: served},
		"policy denies":          {err: errDown, policy: throttr.DenyHits, want: want{503, text, "Service unavailable. Try again in 1 s.\n", "1"}},
		"a mistake":              {err: throttr.ErrScale, policy: throttr.AllowHits, denied: httplimit.Serve, failed: httplimit.Serve, want: want{500, text, "The rate limit is misconfigured.\n", ""}},
		"canceled":               {err: context.Canceled, ctx: left, failed: httplimit.Serve, want: want{status: 499}},
		"expired":                {err: context.DeadlineExceeded, ctx: late, failed: httplimit.Serve, want: want{503, text, "Service unavailable.\n", ""}},
		"policy denies, problem": {err: errDown, policy: throttr.DenyHits, denied: httplimit.DenyProblem, want: want{503, problem, reduced, "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := httplimit.Config{OnDenied: test.denied, OnFailure: test.failed, Limits: []throttr.Limit{httplimit.PerMinute(3), httplimit.PerHour(9)}}
			s := newSite(t, cfg, test.err, throttr.WithPolicy(test.policy))
			if test.err == nil {
				s.statuses(3, alice)
			}
			s.served = 0
			send := func(method string) *http.Response {
				w := httptest.NewRecorder()
				w.Header().Set("Content-Length", "5")
				s.ServeHTTP(w, httptest.NewRequestWithContext(cmp.Or(test.ctx, t.Context()), method, "/", nil))
				return w.Result()
			}
			res := send(http.MethodGet)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, test.want, want{res.StatusCode, res.Header.Get("Content-Type"), string(body), res.Header.Get("Retry-After")})
			require.Equal(t, test.want.body == "", res.Header.Get("Content-Length") == "5")
			require.Equal(t, test.ctx == nil, res.Header.Get("RateLimit-Policy") != "")
			require.Equal(t, test.want.status == 202, s.served == 1)

			head := send(http.MethodHead)
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

// The syntax of the fields that middleware sets, by RFC 9651 and RFC 9110.
var (
	policyForm = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])+";q=\d{1,15};w=\d{1,15};pk=:[A-Za-z0-9+/]+={0,2}:$`)
	limitForm  = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])+";r=\d{1,15};t=\d{1,15};pk=:[A-Za-z0-9+/]+={0,2}:$`)
	numberForm = regexp.MustCompile(`^[1-9]\d{0,14}$`)
)

// FuzzMiddleware limits requests with arbitrary keys, costs and limits. It checks that each is served or denied, and
// that the fields of the response contain no byte of the request.
func FuzzMiddleware(f *testing.F) {
	f.Add("192.0.2.1", "minute", uint64(3), uint64(1), int64(time.Minute))
	f.Add("\r\nX: y", `a"b\c`, uint64(0), uint64(0), int64(1))
	f.Add("", " ", uint64(999999999999999), uint64(1)<<63-1, int64(1<<63-1))
	f.Add("unknown", "\x7f", uint64(1), uint64(2), int64(0))
	f.Add("k", "é", uint64(1)<<63, uint64(1), int64(-1))
	f.Fuzz(func(t *testing.T, key, name string, quota, cost uint64, window int64) {
		backend := memory.New(memory.WithCleanPeriod(0))
		defer backend.Close()
		wrap, err := httplimit.New(throttr.NewRateLimit(backend), httplimit.Config{
			Limits:       []throttr.Limit{{Name: name, Max: quota, Scale: time.Duration(window)}},
			Key:          func(*http.Request) string { return key },
			Cost:         func(*http.Request, throttr.Limit) uint64 { return cost },
			PartitionKey: true,
			PlainKeys:    true,
		})
		if err != nil {
			require.ErrorIs(t, err, throttr.ErrConfig)
			return
		}
		served := 0
		h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		for range 2 {
			served = 0
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			switch {
			case cost > throttr.Unlimited:
				require.Equal(t, 500, w.Code)
			case quota == throttr.Unlimited, cost == 0:
				require.Equal(t, 1, served)
			default:
				require.Equal(t, served == 0, w.Code == 429)
				require.True(t, served == 0 || cost <= quota)
				require.Regexp(t, policyForm, w.Header().Get("RateLimit-Policy"))
				if cost <= quota && quota > 0 {
					require.Regexp(t, limitForm, w.Header().Get("RateLimit"))
					require.True(t, served == 1 || numberForm.MatchString(w.Header().Get("Retry-After")))
				}
			}
		}
	})
}
