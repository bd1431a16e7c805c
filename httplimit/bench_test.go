package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

// bare is a ResponseWriter that discards everything.
type bare struct {
	header http.Header
}

func (b *bare) Header() http.Header         { return b.header }
func (b *bare) Write(p []byte) (int, error) { return len(p), nil }
func (b *bare) WriteHeader(int)             {}

// BenchmarkRequest measures what the middleware adds to a request, over a memory backend, beside middleware
// that does nothing.
func BenchmarkRequest(b *testing.B) {
	const many = 1_000_000_000
	limits := []throttr.Limit{httplimit.PerSecond(many), httplimit.PerMinute(many), httplimit.PerHour(many), httplimit.PerDay(many)}
	one := limits[2:3]
	proxied, err := httplimit.ByAddr(httplimit.AddrConfig{Proxies: prefixes("192.0.2.0/24"), Header: "X-Forwarded-For"})
	require.NoError(b, err)
	places := inflight.New(memory.New())
	defer places.Close()
	empty := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	b.Run("empty", func(b *testing.B) { benchmarkRequests(b, empty) })
	for _, bm := range []struct {
		name string
		cfg  httplimit.Config
	}{
		{"skipped", httplimit.Config{Limits: one, Skip: func(*http.Request) bool { return true }}},
		{"one limit", httplimit.Config{Limits: one}},
		{"one limit, no fields", httplimit.Config{Limits: one, HideFields: true}},
		{"one limit, behind a proxy", httplimit.Config{Limits: one, Key: proxied}},
		{"one limit and X-RateLimit", httplimit.Config{Limits: one, Legacy: httplimit.LegacySeconds}},
		{"two limits", httplimit.Config{Limits: limits[:2]}},
		{"four limits", httplimit.Config{Limits: limits}},
		{"one limit, and one in flight", httplimit.Config{Limits: one, InFlight: inflight.Limit{Name: "flight", Max: 1}, Places: places}},
		{"denied", httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(0)}}},
		{"denied by a full limit", httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}}},
		{"denied, a problem", httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(0)}, OnDenied: httplimit.DenyProblem}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			backend := memory.New()
			defer backend.Close()
			limit, err := httplimit.New(throttr.NewRateLimit(backend), bm.cfg)
			require.NoError(b, err)
			benchmarkRequests(b, limit)
		})
	}
}

func benchmarkRequests(b *testing.B, middleware func(http.Handler) http.Handler) {
	h := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 198.51.100.7")
	w := &bare{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}
