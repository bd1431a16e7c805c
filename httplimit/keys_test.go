package httplimit_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// asked is a backend that remembers the keys of its calls.
type asked struct {
	window.Backend
	calls int
	keys  map[string]string // by the name of a limit
}

func (a *asked) Take(ctx context.Context, key string, l window.Limit, n uint64) (window.Window, error) {
	a.calls++
	a.keys[l.Name] = key
	return a.Backend.Take(ctx, key, l, n)
}

func (a *asked) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	a.calls++
	for _, t := range takes {
		a.keys[t.Limit.Name] = t.Key
	}
	return a.Backend.TakeAll(ctx, takes, windows)
}

// Limits of several keys are one call. Addresses and what everybody shares are stored as they are, other keys as digests.
func TestLimitsOfSeveralKeysAreTakenTogether(t *testing.T) {
	proxied := httplimit.AddrConfig{Proxies: prefixes("10.0.0.0/8"), Header: "X-Forwarded-For"}
	byAddr, err := httplimit.ByAddr(proxied)
	require.NoError(t, err)
	field := func(r *http.Request) string { return r.Header.Get("User") }
	names := func(l ...string) (all []throttr.Limit) {
		for _, name := range l {
			all = append(all, throttr.Limit{Name: name, Max: 9, Scale: httplimit.PerHour(9).Scale})
		}
		return all
	}
	const client = "client:k203.0.113.7"
	digest := func(key string) string { return "client:h" + admission.Digest(key) }
	for name, test := range map[string]struct {
		cfg    httplimit.Config
		header []string
		want   map[string]string
	}{
		"an address, a user and all": {
			cfg:    httplimit.Config{Limits: names("a", "b", "c"), Addr: proxied, KeyOf: map[string]httplimit.KeyFunc{"b": field, "c": httplimit.Everyone}},
			header: []string{"User", "ann"},
			want:   map[string]string{"a": client, "b": digest("ann"), "c": "client:keveryone"},
		},
		"nobody": {
			cfg:  httplimit.Config{Limits: names("a", "b"), Key: field, Addr: proxied, KeyOf: map[string]httplimit.KeyFunc{"b": field}},
			want: map[string]string{"a": client},
		},
		"nobody, skipped": {
			cfg:  httplimit.Config{Limits: names("a", "b"), Key: field, SkipEmptyKey: true, KeyOf: map[string]httplimit.KeyFunc{"b": byAddr}},
			want: map[string]string{"b": client},
		},
		"the connection's address, too": {
			cfg:  httplimit.Config{Limits: names("a", "b"), Key: byAddr, KeyOf: map[string]httplimit.KeyFunc{"b": httplimit.RemoteAddr}},
			want: map[string]string{"a": client, "b": "client:k10.0.0.1"},
		},
		"plain": {
			cfg:    httplimit.Config{Limits: names("a", "b"), Key: field, KeyOf: map[string]httplimit.KeyFunc{"b": field}, PlainKeys: true},
			header: []string{"User", "ann"},
			want:   map[string]string{"a": "client:kann", "b": "client:kann"},
		},
		"somebody else's address": {
			cfg:    httplimit.Config{Limits: names("a"), Key: field, PlainKeys: true},
			header: []string{"User", "203.0.113.7"},
			want:   map[string]string{"a": digest("203.0.113.7")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &asked{Backend: memory.New(), keys: map[string]string{}}
			test.cfg.PartitionKey = true
			limit, err := httplimit.New(throttr.NewRateLimit(b), test.cfg)
			require.NoError(t, err)
			h := limit(http.HandlerFunc(hello))
			res := get(h, "10.0.0.1:80", append(test.header, "X-Forwarded-For", "203.0.113.7")...)
			require.Equal(t, 200, res.StatusCode)
			require.Equal(t, test.want, b.keys)
			require.Equal(t, 1, b.calls)
		})
	}
}

// The fields list all limits, each with its own client, and a problem those that have denied.
func TestFieldsAndProblemsOfSeveralKeys(t *testing.T) {
	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), httplimit.Config{
		Limits:       []throttr.Limit{httplimit.PerMinute(9), httplimit.PerHour(1)},
		KeyOf:        map[string]httplimit.KeyFunc{"hour": httplimit.ByHeader("User")},
		PartitionKey: true, OnDenied: httplimit.DenyProblem,
	})
	require.NoError(t, err)
	h := limit(http.HandlerFunc(hello))
	res := get(h, "192.0.2.1:80")
	require.Equal(t, `"minute";q=9;w=60;pk=:MTkyLjAuMi4x:`, res.Header.Get("RateLimit-Policy"), "a limit that does not apply is not listed")
	for _, want := range []int{200, 429} {
		res = get(h, "192.0.2.1:80", "User", "ann")
		require.Equal(t, want, res.StatusCode)
		require.Regexp(t, `^"minute";q=9;w=60;pk=:MTkyLjAuMi4x:, "hour";q=1;w=3600;pk=:.{16}:$`, res.Header.Get("RateLimit-Policy"))
		require.Regexp(t, `^"minute";r=7;t=\d+;pk=:MTkyLjAuMi4x:, "hour";r=0;t=3600;pk=:.{16}:$`, res.Header.Get("RateLimit"))
	}
	body := make([]byte, 1000)
	n, _ := res.Body.Read(body)
	require.Contains(t, string(body[:n]), `"violated-policies":["hour"]`)
}

// The clients of a Unix socket have no addresses: they count together, and no limit leaves them out.
func TestClientsOfAUnixSocketCountTogether(t *testing.T) {
	byAddr, err := httplimit.ByAddr(httplimit.AddrConfig{UnixProxy: true, Header: "X-Forwarded-For"})
	require.NoError(t, err)
	for name, cfg := range map[string]httplimit.Config{
		"the default": {},
		"skipping":    {SkipEmptyKey: true},
		"Key":         {Key: httplimit.RemoteAddr, SkipEmptyKey: true},
		"RemoteAddr":  {KeyOf: map[string]httplimit.KeyFunc{"minute": httplimit.RemoteAddr}},
		"ByAddr":      {KeyOf: map[string]httplimit.KeyFunc{"minute": byAddr}},
		"combined":    {KeyOf: map[string]httplimit.KeyFunc{"minute": func(r *http.Request) string { return httplimit.RemoteAddr(r) }}},
	} {
		s := newSite(t, cfg)
		require.Equal(t, []int{202, 202, 202, 429, 429}, s.statuses(5, "@"), name)
		require.Equal(t, []int{429, 202}, append(s.statuses(1, "/run/site.sock"), s.statuses(1, alice)...), name)
	}
}

// Support need not know the key of a limit that all share, and is told if it lacks another one.
func TestPeekOfKeysOfLimits(t *testing.T) {
	m, _ := newMiddleware(t, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerMinute(2), httplimit.PerHour(9)},
		KeyOf:  map[string]httplimit.KeyFunc{"minute": httplimit.Everyone, "hour": httplimit.ByHeader("User")},
	})
	for _, want := range []int{200, 200, 429} {
		require.Equal(t, want, request(m, "User", "ann"))
	}
	_, err := m.Peek(t.Context(), httplimit.Request{})
	require.ErrorIs(t, err, throttr.ErrConfig)
	require.ErrorContains(t, err, `limit "hour" has keys of its own`)
	ann := httplimit.Request{Keys: map[string]httplimit.Key{"hour": {Text: httplimit.HeaderKey("User", "ann")}}}
	for range 2 {
		outcomes, err := m.Peek(t.Context(), ann)
		require.NoError(t, err)
		require.False(t, outcomes[0].Allowed)
		require.NoError(t, m.Reset(t.Context(), ann), "which ends nothing that others share")
	}
}

// Without its plan, a request has the limits of the Config, or is one that could not be counted.
func TestAPlanThatIsNotKnown(t *testing.T) {
	unknown := errors.New("no database")
	var seen []error
	observer := throttr.WithObserver(func(ctx context.Context, e throttr.Event) { seen = append(seen, admission.PlanErr(ctx)) })
	cfg := httplimit.Config{Plan: func(*http.Request) (*httplimit.Plan, error) { return new(httplimit.Plan), unknown }}
	s := newSite(t, cfg, observer)
	require.Equal(t, []int{202, 202, 202, 429}, s.statuses(4, alice))
	require.Equal(t, []error{unknown, unknown, unknown, unknown}, seen)

	cfg.Limits = []throttr.Limit{}
	s = newSite(t, cfg)
	require.Equal(t, []int{202, 202, 202, 202}, s.statuses(4, alice))
	cfg.OnFailure = httplimit.Refuse
	s = newSite(t, cfg)
	require.Equal(t, 503, s.get(alice).StatusCode)
	cfg.Plan = func(*http.Request) (*httplimit.Plan, error) { return nil, nil }
	s = newSite(t, cfg)
	require.Equal(t, 202, s.get(alice).StatusCode)
	require.False(t, s.found, "no limit applies")
}

func TestRequestsOfNetworks(t *testing.T) {
	for _, test := range []struct {
		cfg     httplimit.AddrConfig
		remote  string
		field   string
		network string
		want    bool
	}{
		{remote: "10.1.2.3:80", network: "10.0.0.0/8", want: true},
		{remote: "[::ffff:10.1.2.3]:80", network: "10.0.0.0/8", want: true},
		{remote: "10.1.2.3:80", network: "::ffff:10.0.0.0/104", want: true},
		{remote: "11.1.2.3:80", network: "10.0.0.0/8"},
		{remote: "[2001:db8::1:2:3:4]:80", network: "2001:db8::1:2:3:4/128", want: true},
		{remote: "[2001:db8::1:2:3:5]:80", network: "2001:db8::1:2:3:4/128"}, // the whole address
		{remote: "@", network: "10.0.0.0/8"},
		{remote: "10.1.2.3:80", field: "192.0.2.1", network: "192.0.2.0/24"}, // nobody is trusted
		{cfg: httplimit.AddrConfig{Header: "X-Forwarded-For", Hops: 1}, remote: "10.1.2.3:80", field: "192.0.2.1", network: "192.0.2.0/24", want: true},
		{cfg: httplimit.AddrConfig{Header: "X-Forwarded-For", Proxies: prefixes("10.0.0.0/8")}, remote: "10.1.2.3:80", field: "10.0.0.1, 192.0.2.1", network: "10.0.0.0/8"},
	} {
		inside, err := httplimit.InNetworks(test.cfg, netip.MustParsePrefix(test.network))
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = test.remote
		r.Header.Set("X-Forwarded-For", test.field)
		require.Equal(t, test.want, inside(r), test)
	}
	for _, networks := range [][]netip.Prefix{nil, {{}}, {netip.MustParsePrefix("0.0.0.0/0")}} {
		_, err := httplimit.InNetworks(httplimit.AddrConfig{}, networks...)
		require.ErrorIs(t, err, throttr.ErrConfig)
	}
	_, err := httplimit.InNetworks(httplimit.AddrConfig{Hops: 1}, netip.MustParsePrefix("10.0.0.0/8"))
	require.ErrorIs(t, err, throttr.ErrConfig)
}

// The caller may change what it has passed.
func TestNewCopiesKeyOf(t *testing.T) {
	keys := map[string]httplimit.KeyFunc{"minute": httplimit.Everyone}
	s := newSite(t, httplimit.Config{KeyOf: keys})
	maps.DeleteFunc(keys, func(string, httplimit.KeyFunc) bool { return true })
	require.Equal(t, []int{202, 202, 202}, s.statuses(3, alice))
	require.Equal(t, []int{429}, s.statuses(1, bob))
	require.True(t, slices.ContainsFunc(s.decision.Outcomes, func(o httplimit.Outcome) bool { return o.Key == "everyone" }))
}
