package httplimit_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
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

// newSite returns a site, whose backend fails with err, unless that is nil. The default of cfg.Limits is 3 a minute.
func newSite(t testing.TB, cfg httplimit.Config, err error, opts ...throttr.Option) *site {
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

// Without its plan, a request has the limits of the Config.
func TestPlanOfARequestDecidesItsLimits(t *testing.T) {
	plans := map[string]*httplimit.Plan{"pro": httplimit.MustPlan(httplimit.PerMinute(5)), "internal": httplimit.MustPlan()}
	s := newSite(t, httplimit.Config{OnFailure: httplimit.Refuse, Plan: func(r *http.Request) (*httplimit.Plan, error) {
		if r.Header.Get("Plan") == "?" {
			return plans["internal"], errors.New("no database")
		}
		return plans[r.Header.Get("Plan")], nil
	}}, nil)
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, alice), "no plan: Limits apply")
	require.Equal(t, []int{202, 202, 429}, s.statuses(3, alice, "Plan", "pro"), "a change of plans keeps the count")
	require.Equal(t, []int{202, 202, 202, 202}, s.statuses(4, bob, "Plan", "internal"))
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, bob, "Plan", "?"))
}

func TestARequestHasACostInEachLimit(t *testing.T) {
	second, minute := httplimit.PerSecond(9), httplimit.PerMinute(9)
	s := newSite(t, httplimit.Config{Limits: []throttr.Limit{second, minute}, Cost: func(r *http.Request, l throttr.Limit) uint64 {
		if l.Name == "second" {
			return 2
		}
		return uint64(r.ContentLength)
	}}, nil)
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

// Limits of several keys are one call. Addresses and what everybody shares are stored as they are, other keys as
// digests.
func TestLimitsOfSeveralKeysAreTakenTogether(t *testing.T) {
	proxied := httplimit.AddrConfig{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: "X-Forwarded-For"}
	byAddr, err := httplimit.ByAddr(proxied)
	require.NoError(t, err)
	field := httplimit.ByHeader("user")
	require.Equal(t, "User:"+admission.Digest("ann"), httplimit.HeaderKey("USER", "ann"))
	var limits []throttr.Limit
	for _, name := range []string{"request", "user", "all", "address", "peer"} {
		limits = append(limits, throttr.Limit{Name: name, Max: 9, Scale: time.Hour})
	}
	const client = "client:k203.0.113.7"
	digest := "client:h" + admission.Digest(httplimit.HeaderKey("user", "ann"))
	plain := "client:k" + httplimit.HeaderKey("user", "ann")
	for name, test := range map[string]struct {
		cfg             httplimit.Config
		user            string
		request, byUser string // the keys of the limits of these names: "" is none
	}{
		"a user":          {httplimit.Config{}, "ann", client, digest},
		"by the user":     {httplimit.Config{Key: field}, "ann", digest, digest},
		"nobody":          {httplimit.Config{Key: field}, "", client, ""},
		"nobody, skipped": {httplimit.Config{Key: field, SkipEmptyKey: true}, "", "", ""},
		"an address":      {httplimit.Config{Key: byAddr}, "", client, ""},
		"plain":           {httplimit.Config{Key: field, PlainKeys: true}, "ann", plain, plain},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			keys := map[string]string{} // by the name of a limit
			b := testkit.Hooked{Backend: memory.New(), Around: func(_ context.Context, _ string, takes []window.Take, do func() error) error {
				calls++
				for _, t := range takes {
					keys[t.Limit.Name] = t.Key
				}
				return do()
			}}
			test.cfg.Limits = limits
			test.cfg.Addr = proxied
			test.cfg.PartitionKey = true
			test.cfg.KeyOf = map[string]httplimit.KeyFunc{
				"user": field, "all": httplimit.Everyone, "address": byAddr, "peer": httplimit.RemoteAddr,
			}
			limit, err := httplimit.New(throttr.NewRateLimit(b), test.cfg)
			require.NoError(t, err)
			clear(test.cfg.KeyOf) // New has a copy
			res := get(limit(http.HandlerFunc(hello)), "10.0.0.1:80", "User", test.user, "X-Forwarded-For", "203.0.113.7")
			require.Equal(t, 200, res.StatusCode)
			want := map[string]string{"all": "client:keveryone", "address": client, "peer": "client:k10.0.0.1"}
			want["request"] = test.request
			want["user"] = test.byUser
			maps.DeleteFunc(want, func(_, key string) bool { return key == "" })
			require.Equal(t, want, keys)
			require.Equal(t, 1, calls)
		})
	}
}

func TestRequestsOfNetworks(t *testing.T) {
	for _, test := range []struct {
		cfg            httplimit.AddrConfig
		remote, within string
		want           bool
	}{
		{remote: "10.1.2.3:80", within: "10.0.0.0/8", want: true},
		{remote: "[::ffff:10.1.2.3]:80", within: "10.0.0.0/8", want: true},
		{remote: "10.1.2.3:80", within: "::ffff:10.0.0.0/104", want: true},
		{remote: "11.1.2.3:80", within: "10.0.0.0/8"},
		{remote: "[2001:db8::1:2:3:4]:80", within: "2001:db8::1:2:3:4/128", want: true},
		{remote: "[2001:db8::1:2:3:5]:80", within: "2001:db8::1:2:3:4/128"}, // the whole address
		{remote: "@", within: "10.0.0.0/8"},
		{remote: "10.1.2.3:80", within: "192.0.2.0/24"}, // nobody is trusted
		{cfg: httplimit.AddrConfig{Header: "X-Forwarded-For", Hops: 1}, remote: "10.1.2.3:80", within: "192.0.2.0/24", want: true},
	} {
		inside, err := httplimit.InNetworks(test.cfg, netip.MustParsePrefix(test.within))
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = test.remote
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		require.Equal(t, test.want, inside(r), test)
	}
	for _, networks := range [][]netip.Prefix{nil, {{}}, {netip.MustParsePrefix("0.0.0.0/0")}} {
		_, err := httplimit.InNetworks(httplimit.AddrConfig{}, networks...)
		require.ErrorIs(t, err, throttr.ErrConfig)
	}
	_, err := httplimit.InNetworks(httplimit.AddrConfig{Hops: 1}, netip.MustParsePrefix("10.0.0.0/8"))
	require.ErrorIs(t, err, throttr.ErrConfig)
}
