package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// site is a handler behind middleware, over a memory backend with a clock that tests advance.
type site struct {
	http.Handler
	clock    backendtest.Clock
	limiter  *throttr.RateLimit
	decision httplimit.Decision // the last one that the handler found
	found    bool
	served   int
}

// newSite returns a site. The default of cfg.Limits is 3 a minute.
func newSite(t testing.TB, cfg httplimit.Config, opts ...throttr.Option) *site {
	t.Helper()
	s := &site{clock: backendtest.NewClock()}
	backend := memory.New(memory.WithClock(s.clock.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { backend.Close() })
	s.limiter = throttr.NewRateLimit(backend, opts...)
	s.wrap(t, cfg)
	return s
}

// newBrokenSite returns a site whose backend returns the errors of fails.
func newBrokenSite(t testing.TB, cfg httplimit.Config, fails func(scale time.Duration) error, opts ...throttr.Option) *site {
	t.Helper()
	s := &site{clock: backendtest.NewClock()}
	backend := memory.New(memory.WithClock(s.clock.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { backend.Close() })
	s.limiter = throttr.NewRateLimit(broken{backend, fails}, opts...)
	s.wrap(t, cfg)
	return s
}

func (s *site) wrap(t testing.TB, cfg httplimit.Config) {
	t.Helper()
	if cfg.Limits == nil {
		cfg.Limits = []throttr.Limit{httplimit.PerMinute(3)}
	}
	limit, err := httplimit.New(s.limiter, cfg)
	require.NoError(t, err)
	s.Handler = limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.served++
		s.decision, s.found = httplimit.FromContext(r.Context())
		w.Header().Set("X-Handler", "was here")
		w.WriteHeader(http.StatusAccepted)
	}))
}

// get sends a request from an address and returns the response.
func (s *site) get(from string, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = from
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

// statuses sends n requests and returns the statuses of the responses.
func (s *site) statuses(n int, from string, change ...func(*http.Request)) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = s.get(from, change...).StatusCode
	}
	return all
}

const (
	alice = "192.0.2.1:1111"
	bob   = "192.0.2.2:2222"
)

var errDown = errors.New("the backend is down")

// count returns what a limit has counted of a client.
func (s *site) count(t *testing.T, client string, l throttr.Limit) uint64 {
	t.Helper()
	res, err := s.limiter.Peek(t.Context(), "client:k"+client, l, 0)
	require.NoError(t, err)
	return res.Count
}

// broken is a backend that fails the calls for which fails returns an error.
type broken struct {
	window.Backend
	fails func(scale time.Duration) error
}

func (b broken) Hit(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if err := b.fails(l.Scale); err != nil {
		return window.Window{}, err
	}
	return b.Backend.Hit(ctx, key, l, n)
}

func (b broken) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	if err := b.fails(l.Scale); err != nil {
		return window.Window{}, err
	}
	return b.Backend.Take(ctx, key, l, n)
}

func (b broken) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	for _, t := range takes {
		if err := b.fails(t.Limit.Scale); err != nil {
			return false, err
		}
	}
	return b.Backend.TakeAll(ctx, takes, windows)
}

func always(err error) func(time.Duration) error { return func(time.Duration) error { return err } }

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

// number returns the value of a numeric header field.
func number(t *testing.T, h http.Header, name string) int {
	t.Helper()
	n, err := strconv.Atoi(h.Get(name))
	require.NoError(t, err)
	return n
}

func prefixes(all ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(all))
	for i, p := range all {
		ps[i] = netip.MustParsePrefix(p)
	}
	return ps
}
