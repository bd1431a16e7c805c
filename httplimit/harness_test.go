package httplimit_test

import (
	"errors"
	"net/http"
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

// statuses sends n requests and returns the statuses of the responses.
func (s *site) statuses(n int, from string, header ...string) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = get(s, from, header...).StatusCode
	}
	return all
}

const (
	alice = "192.0.2.1:1111"
	bob   = "192.0.2.2:2222"
)

var errDown = errors.New("the backend is down")

// counts returns what the limits of the site have counted of a client.
func (s *site) counts(t *testing.T, client httplimit.Request) (all []uint64) {
	t.Helper()
	outcomes, err := s.Peek(t.Context(), client)
	require.NoError(t, err)
	for _, o := range outcomes {
		all = append(all, o.Count)
	}
	return all
}
