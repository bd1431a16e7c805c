package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// The server removes the files of a form, although the handler, behind two middlewares, gets another Request than it has.
func TestFilesOfAFormAreRemoved(t *testing.T) {
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, r.ParseMultipartForm(1))
	}))
	for _, l := range []throttr.Limit{httplimit.PerMinute(5), httplimit.PerDay(5)} {
		handler = must(httplimit.Config{Limits: []throttr.Limit{l}})(handler)
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("--b--\r\n"))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	res := serve(handler, r)
	require.Equal(t, 200, res.StatusCode)
	require.NotNil(t, r.MultipartForm, "its files are those that a server removes")
	require.Equal(t, []string{`"day";q=5;w=86400`, `"minute";q=5;w=60`}, res.Header.Values("RateLimit-Policy"), "the fields of both")
	require.Equal(t, []string{`"day";r=4;t=86400`, `"minute";r=4;t=60`}, res.Header.Values("RateLimit"))
}

// Without its plan, a request has the limits of the Config, or is one that could not be counted.
func TestPlanOfARequestDecidesItsLimits(t *testing.T) {
	plans := map[string]*httplimit.Plan{"pro": httplimit.MustPlan(httplimit.PerMinute(5)), "internal": httplimit.MustPlan()}
	cfg := httplimit.Config{OnFailure: httplimit.Refuse, Plan: func(r *http.Request) (*httplimit.Plan, error) {
		if r.Header.Get("Plan") == "?" {
			return plans["internal"], errors.New("no database")
		}
		return plans[r.Header.Get("Plan")], nil
	}}
	s := newSite(t, cfg)
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, alice), "no plan: Limits apply")
	require.Equal(t, []int{202, 202, 429}, s.statuses(3, alice, "Plan", "pro"), "a change of plans keeps the count")
	require.Equal(t, []int{202, 202, 202, 202}, s.statuses(4, bob, "Plan", "internal"))
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, bob, "Plan", "?"))

	cfg.Limits = []throttr.Limit{}
	s = newSite(t, cfg)
	require.Equal(t, []int{503, 503, 503, 503}, s.statuses(4, alice, "Plan", "?"))
	require.Equal(t, 202, get(s, alice).StatusCode)
	require.False(t, s.found, "no limit applies")
}

func TestARequestHasACostInEachLimit(t *testing.T) {
	second, minute := httplimit.PerSecond(9), httplimit.PerMinute(9)
	s := newSite(t, httplimit.Config{Limits: []throttr.Limit{second, minute}, Cost: func(r *http.Request, l throttr.Limit) uint64 {
		if l.Name == "second" {
			return 2
		}
		return uint64(r.ContentLength)
	}})
	for length, status := range map[int64]int{3: 202, -1: 500} { // -1 was converted
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.ContentLength = length
		require.Equal(t, status, serve(s, r).StatusCode)
	}
	client := httplimit.Request{Addr: "192.0.2.1"}
	require.Equal(t, []uint64{2, 3}, s.counts(t, client))
	require.NoError(t, s.Reset(t.Context(), client))
	require.Equal(t, []uint64{0, 0}, s.counts(t, client))
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	limiter := throttr.NewRateLimit(memory.New())
	hour := []throttr.Limit{httplimit.PerHour(1)}
	for text, cfg := range map[string]httplimit.Config{
		"Limits is empty":              {},
		`"day"`:                        {Limits: hour, KeyOf: map[string]httplimit.KeyFunc{"day": httplimit.Everyone}},
		`"hour"`:                       {Limits: hour, KeyOf: map[string]httplimit.KeyFunc{"hour": nil}},
		`""`:                           {Plan: func(*http.Request) (*httplimit.Plan, error) { return nil, nil }, KeyOf: map[string]httplimit.KeyFunc{"": httplimit.Everyone}},
		`"hour" has no key of its own`: {Limits: hour, Plan: func(*http.Request) (*httplimit.Plan, error) { return nil, nil }, KeyOf: map[string]httplimit.KeyFunc{"day": httplimit.Everyone}},
		"no Header":                    {Limits: hour, Addr: httplimit.AddrConfig{Hops: 1}},
		"CountRefusals":                {Limits: hour, CountRefusals: true, GiveBack: func(*http.Request, int) bool { return true }},
		"Legacy 3":                     {Limits: hour, Legacy: 3},
	} {
		limit, err := httplimit.New(limiter, cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, text)
		require.Nil(t, limit)
	}
	require.PanicsWithValue(t, "httplimit: NewMiddleware: limiter is nil", func() { httplimit.New(nil, httplimit.Config{Limits: hour}) })
	limit := must(httplimit.Config{Limits: hour})
	require.PanicsWithValue(t, "httplimit: the handler to wrap is nil", func() { limit(nil) })
	require.Panics(t, func() { limit(http.HandlerFunc(nil)) })
}
