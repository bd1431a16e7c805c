package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/race"
	"github.com/throttr-go/throttr/memory"
)

const client = "203.0.113.9:4711"

// plans are limits of requests that are granted at once, and of others.
var plans = map[string][]throttr.Limit{
	"one":           {httplimit.PerMinute(3)},
	"nothing":       {httplimit.PerMinute(0)},
	"unlimited":     {{Name: "all", Max: throttr.Unlimited, Scale: time.Hour}},
	"two":           {httplimit.PerMinute(3), httplimit.PerHour(5)},
	"the second":    {httplimit.PerMinute(30), httplimit.PerHour(5)},
	"with a shadow": {httplimit.PerMinute(3), {Name: "tried", Max: 1, Scale: time.Hour, Shadow: true}},
	"a shadow":      {{Name: "tried", Max: 1, Scale: time.Hour, Shadow: true}},
	"four":          {httplimit.PerSecond(9), httplimit.PerMinute(8), httplimit.PerHour(5), httplimit.PerDay(6)},
	"five":          {httplimit.PerSecond(9), httplimit.PerMinute(8), httplimit.PerHour(5), httplimit.PerDay(6), {Name: "week", Max: 9, Scale: 7 * 24 * time.Hour}},
	"a bucket":      {{Name: "bucket", Max: 2, Scale: time.Second, Burst: 5, Algorithm: throttr.TokenBucket}},
	"a log":         {{Name: "log", Max: 5, Scale: time.Minute, Algorithm: throttr.SlidingLog}},
	"with a window": {{Name: "window", Max: 5, Scale: time.Minute, Algorithm: throttr.SlidingWindow}, httplimit.PerHour(7)},
	"long fields":   {{Name: strings.Repeat("n", 64), Max: 999_999_999_999_999, Scale: 300 * 24 * time.Hour}},
	"a mistake":     {{Name: "burst", Max: 2, Scale: time.Second, Burst: 5}},
}

// seen is what a client and a handler see of a request.
type seen struct {
	status   int
	header   http.Header
	found    bool
	decision httplimit.Decision // without what is not exported
	refunded bool
}

// With an observer, no request is granted without a Reservation.
func TestRequestsThatAreGrantedAtOnceAreLikeOthers(t *testing.T) {
	for name, limits := range plans {
		plan := httplimit.MustPlan(limits...)
		for _, cfg := range []httplimit.Config{
			{}, {HideFields: true}, {Legacy: httplimit.LegacyUnix}, {QuotaUnit: "content-bytes"}, {PartitionKey: true},
			{CountRefusals: true}, {Shadow: true},
			{Key: func(*http.Request) string { return strings.Repeat("k", 200) }},
			{Cost: func(*http.Request) uint64 { return 2 }}, {Cost: func(*http.Request) uint64 { return 0 }},
		} {
			cfg.Limits, cfg.Plan = []throttr.Limit{httplimit.PerDay(1)}, func(*http.Request) *httplimit.Plan { return plan }
			observer := throttr.WithObserver(func(context.Context, throttr.Event) {})
			require.Equal(t, seenOf(t, newSite(t, cfg, observer)), seenOf(t, newSite(t, cfg)), name)
		}
	}
}

// seenOf sends some requests, of which some are refunded.
func seenOf(t *testing.T, s *site) (all []seen) {
	for i := range 8 {
		s.decision, s.found = httplimit.Decision{}, false
		res := s.get(client)
		d := s.decision
		d2 := httplimit.Decision{Key: d.Key, Allowed: d.Allowed, Strictest: d.Strictest, Outcomes: d.Outcomes, RetryAfter: d.RetryAfter, Shadow: d.Shadow}
		refunded := i%3 == 0 && d.Refund(t.Context()) == nil
		all = append(all, seen{res.StatusCode, res.Header, s.found, d2, refunded})
		s.clock.Advance(300 * time.Millisecond)
	}
	return all
}

func TestARequestIsRefundedOnce(t *testing.T) {
	for name, limits := range plans {
		if name == "nothing" || name == "a mistake" {
			continue
		}
		limiter := throttr.NewRateLimit(memory.New())
		m, err := httplimit.NewMiddleware(limiter, httplimit.Config{Limits: limits})
		require.NoError(t, err)
		var kept context.Context
		h := m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { kept = r.Context() }))
		request := func() {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = client
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		request()
		refunded := kept
		request()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				d, ok := httplimit.FromContext(refunded)
				if !ok || d.Refund(t.Context()) != nil || d.Refund(t.Context()) != nil {
					t.Error("there is no decision, or it can't be refunded")
				}
			})
		}
		all.Wait()
		outcomes, err := m.Peek(t.Context(), "203.0.113.9", limits...)
		require.NoError(t, err)
		for _, o := range outcomes {
			if o.Limit != throttr.Unlimited && !(name == "a shadow" || o.Name == "tried") {
				require.EqualValues(t, 1, o.Count, "%s: %s", name, o.Name)
			}
		}
	}
}

// A handler gets all of the request, and what it does with the context and the header fields is its own.
func TestAGrantedRequestIsACopy(t *testing.T) {
	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(9)}})
	require.NoError(t, err)
	type key struct{}
	var original *http.Request
	ended := false
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		original = r
		limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.NotSame(t, original, r)
			require.Equal(t, "42", r.PathValue("id"))
			require.Equal(t, original.URL, r.URL)
			require.Equal(t, "value", r.Context().Value(key{}))
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			context.AfterFunc(ctx, func() {})
			d, ok := httplimit.FromContext(ctx)
			require.True(t, ok)
			require.EqualValues(t, 8, d.Strictest.Remaining)
			_, ok = httplimit.FromContext(original.Context())
			require.False(t, ok)
			require.NoError(t, r.Context().Err())
			w.Header()["Ratelimit-Policy"][0] = "changed"
			w.Header()["Ratelimit-Policy"] = append(w.Header()["Ratelimit-Policy"], "added")
			require.Equal(t, []string{`"hour";r=8;t=3600`}, w.Header()["Ratelimit"])
			ended = true
		})).ServeHTTP(w, r)
	}))
	r := httptest.NewRequestWithContext(context.WithValue(t.Context(), key{}, "value"), http.MethodGet, "/users/42", nil)
	mux.ServeHTTP(httptest.NewRecorder(), r)
	require.True(t, ended)
}

// A granted request is one allocation, with its copy, and the texts of the stored key and of RateLimit are another.
func TestRequestsAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const many = 1_000_000
	limits := []throttr.Limit{httplimit.PerSecond(many), httplimit.PerMinute(many), httplimit.PerHour(many), httplimit.PerDay(many)}
	for _, c := range []struct {
		name string
		cfg  httplimit.Config
		most float64
	}{
		{"one limit", httplimit.Config{Limits: limits[2:3]}, 2},
		{"one limit, no fields", httplimit.Config{Limits: limits[2:3], HideFields: true}, 2},
		{"a unit", httplimit.Config{Limits: limits[2:3], QuotaUnit: "content-bytes"}, 2},
		{"two limits", httplimit.Config{Limits: limits[:2]}, 3},
		{"four limits", httplimit.Config{Limits: limits}, 3},
	} {
		limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), c.cfg)
		require.NoError(t, err)
		h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		w := &bare{header: http.Header{}}
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
			clear(w.header)
			h.ServeHTTP(w, r)
		}), c.most, c.name)
	}
}
