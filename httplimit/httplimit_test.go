package httplimit_test

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
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

// The server removes the files of a form, although the handler, behind two middlewares, gets another Request than it
// has.
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

// An http.ServeMux inside sets the pattern of the Request that it gets. Metrics and logs outside name the route by it,
// also if the handler panics.
func TestMiddlewareOutsideSeesThePattern(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	h := must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerDay(5)}})(mux)
	r := httptest.NewRequest(http.MethodGet, "/users/42", nil)
	require.Panics(t, func() { serve(h, r) })
	require.Equal(t, "GET /users/{id}", r.Pattern)
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

// What is given back depends on the status, however the handler responds.
func TestAResponseDecidesWhatIsGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		respond func(w http.ResponseWriter, r *http.Request)
		status  int
	}{
		"nothing":          {func(w http.ResponseWriter, _ *http.Request) {}, 200},
		"a body":           {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }, 200},
		"a status":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, 304},
		"the first of two": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(500) }, 404},
		"a hint before":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, 401},
		"flushed":          {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, 200},
		"flushed by control": {func(w http.ResponseWriter, _ *http.Request) {
			http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, 200},
		"no such status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }, 500},
		"a panic in a body": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		}, 200},
		"a panic":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500},
		"a panic after 200": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, 200},
		"hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				conn.Close()
			}
		}, 101},
	} {
		t.Run(name, func(t *testing.T) {
			statuses := make(chan int, 1)
			site := newSite(t, httplimit.Config{}, nil)
			limited := site.wrap(t, httplimit.Config{
				GiveBack: func(_ *http.Request, status int) bool { statuses <- status; return test.status != 200 },
			}, test.respond)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(unwrapped{w}, r)
			}))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.Start()
			defer s.Close()
			if res, err := s.Client().Get(s.URL); err == nil {
				io.Copy(io.Discard, res.Body) // a client that leaves early is not asked about
				res.Body.Close()
			}
			require.Equal(t, test.status, <-statuses)
			require.Eventually(t, func() bool {
				return (site.counts(t, httplimit.Request{Addr: "127.0.0.1"})[0] == 1) == (test.status == 200)
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// unwrapped is a ResponseWriter of another middleware, which has no methods of its own: http.ResponseController finds
// what is behind it.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// What the server's ResponseWriter has not, the handler's does not do, and it says so. What is denied has nothing to be
// given back.
func TestAResponseWriterWithoutMethodsIsNoFlusher(t *testing.T) {
	var statuses []int
	limit := must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, GiveBack: func(_ *http.Request, status int) bool {
		statuses = append(statuses, status)
		return false
	}})
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		w.WriteHeader(http.StatusTeapot)
	}))
	for range 2 {
		bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
		h.ServeHTTP(bare, httptest.NewRequest(http.MethodGet, "/", nil))
	}
	require.Equal(t, []int{http.StatusTeapot}, statuses)
}

// A client that leaves can't choose that its request counts nothing. The deadline of a TimeoutHandler is not the
// client's.
func TestARequestWhoseClientHasLeftStaysCounted(t *testing.T) {
	for late, want := range map[bool]uint64{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) { // so that what is given back in the background is there
			ctx, leave := context.WithTimeout(t.Context(), time.Minute)
			s := newSite(t, httplimit.Config{}, nil)
			cfg := httplimit.Config{GiveBack: func(_ *http.Request, status int) bool { return status == 502 }}
			h := s.wrap(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
				if late {
					time.Sleep(2 * time.Minute)
				}
				leave()
				w.WriteHeader(502)
			})
			serve(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			require.Equal(t, []uint64{want}, s.counts(t, httplimit.Request{Addr: "192.0.2.1"}))
		})
	}
}

// A handler gets all of the request, and what it does with the context and the header fields is its own. The context of
// other middleware need not be comparable.
func TestAGrantedRequestIsACopy(t *testing.T) {
	type key struct{}
	ctx := incomparable{context.WithValue(t.Context(), key{}, "value"), nil}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.SetPathValue("id", "42")
	s := newSite(t, httplimit.Config{}, nil)
	h := s.wrap(t, httplimit.Config{}, func(w http.ResponseWriter, got *http.Request) {
		require.NotSame(t, r, got)
		require.Equal(t, "42", got.PathValue("id"))
		require.Equal(t, "value", got.Context().Value(key{}))
		d, ok := httplimit.FromContext(got.Context())
		require.True(t, ok)
		require.EqualValues(t, 2, d.Strictest.Remaining)
		_, ok = httplimit.FromContext(r.Context())
		require.False(t, ok)
		w.WriteHeader(http.StatusAccepted)
	})
	require.Equal(t, http.StatusAccepted, serve(h, r).StatusCode)
	exempt := func(*http.Request) (*httplimit.Plan, error) { return new(httplimit.Plan), nil }
	require.Equal(t, http.StatusAccepted, serve(newSite(t, httplimit.Config{Plan: exempt}, nil), r).StatusCode, "no limit")
}

type incomparable struct {
	context.Context
	values []any
}

// Requests allocate little: the copy of the request, what is known of it, its reservation, and the header fields.
func TestRequestsAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const many = 1_000_000
	limits := []throttr.Limit{httplimit.PerSecond(many), httplimit.PerMinute(many), httplimit.PerHour(many), httplimit.PerDay(many)}
	for _, c := range []struct {
		limits []throttr.Limit
		most   float64
	}{{limits[2:3], 7}, {limits, 18}} {
		h := must(httplimit.Config{Limits: c.limits})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		w := httptest.NewRecorder()
		n := testing.AllocsPerRun(1000, func() {
			clear(w.Header())
			h.ServeHTTP(w, r)
		})
		require.LessOrEqual(t, n, c.most, "%d limits", len(c.limits))
	}
}

// A handler that does not notice that its client has gone still works: it holds its place until it returns, or panics.
func TestAHandlerThatGoesOnHoldsItsPlace(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			places := inflight.New(memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0)))
			defer places.Close()
			stream := inflight.Limit{Name: "streams", Max: 1, Lease: time.Second}
			limit := must(httplimit.Config{InFlight: stream, Places: places, Legacy: httplimit.LegacyUnix})
			hour := must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(9)}, Legacy: httplimit.LegacyUnix})
			ctx, leave := context.WithCancel(t.Context())
			server := httptest.NewRecorder()
			var h http.Handler
			h = hour(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				require.Same(t, server, w, "and so a hijacked connection is the server's, with all of its methods")
				another := get(h, "192.0.2.1:1234")
				require.Equal(t, http.StatusTooManyRequests, another.StatusCode)
				require.Empty(t, another.Header.Get("X-RateLimit-Reset"), "no window ends, also if one of middleware outside does")
				leave()
				time.Sleep(time.Minute)
				require.EqualValues(t, 1, places.Stats().InUse)
				if panics {
					panic(http.ErrAbortHandler)
				}
			})))
			func() {
				defer func() { require.Equal(t, panics, recover() != nil) }()
				h.ServeHTTP(server, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			}()
			require.Zero(t, places.Stats().InUse)
		})
	}
}
