package httplimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// site is a handler behind middleware, over a memory backend with a clock that tests advance.
type site struct {
	http.Handler
	*httplimit.Middleware
	clock    backendtest.Clock
	limiter  *throttr.RateLimit
	decision httplimit.Decision // the last one that the handler found
	found    bool
	served   int
}

// newSite returns a site. The default of cfg.Limits is 3 a minute.
func newSite(t testing.TB, cfg httplimit.Config, opts ...throttr.Option) *site {
	t.Helper()
	return newBrokenSite(t, cfg, nil, opts...)
}

// newBrokenSite returns a site whose backend fails with err, unless that is nil.
func newBrokenSite(t testing.TB, cfg httplimit.Config, err error, opts ...throttr.Option) *site {
	t.Helper()
	s := &site{clock: backendtest.NewClock()}
	backend := memory.New(memory.WithClock(s.clock.Now), memory.WithCleanPeriod(0))
	t.Cleanup(func() { backend.Close() })
	s.limiter = throttr.NewRateLimit(testkit.Broken(backend, err), opts...)
	s.Handler = s.wrap(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		s.served++
		s.decision, s.found = httplimit.FromContext(r.Context())
		w.Header().Set("X-Handler", "was here")
		w.WriteHeader(http.StatusAccepted)
	})
	return s
}

// wrap returns a handler behind middleware over the limiter of the site.
func (s *site) wrap(t testing.TB, cfg httplimit.Config, handler http.HandlerFunc) http.Handler {
	t.Helper()
	if cfg.Limits == nil {
		cfg.Limits = []throttr.Limit{httplimit.PerMinute(3)}
	}
	var err error
	s.Middleware, err = httplimit.NewMiddleware(s.limiter, cfg)
	require.NoError(t, err)
	return s.Wrap(handler)
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
	outcomes, err := s.Peek(t.Context(), httplimit.Request{Addr: client, Plan: httplimit.MustPlan(l)})
	require.NoError(t, err)
	return outcomes[0].Count
}

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
