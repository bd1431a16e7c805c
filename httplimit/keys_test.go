package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// Limits of several keys are one call. Addresses and what everybody shares are stored as they are, other keys as
// digests.
func TestLimitsOfSeveralKeysAreTakenTogether(t *testing.T) {
	proxied := httplimit.AddrConfig{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: "X-Forwarded-For"}
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
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			keys := map[string]string{} // by the name of a limit
			b := testkit.Hooked{Backend: memory.New(), Before: func(_ context.Context, takes ...window.Take) error {
				calls++
				for _, t := range takes {
					keys[t.Limit.Name] = t.Key
				}
				return nil
			}}
			test.cfg.PartitionKey = true
			limit, err := httplimit.New(throttr.NewRateLimit(b), test.cfg)
			require.NoError(t, err)
			clear(test.cfg.KeyOf) // New has a copy
			h := limit(http.HandlerFunc(hello))
			res := get(h, "10.0.0.1:80", append(test.header, "X-Forwarded-For", "203.0.113.7")...)
			require.Equal(t, 200, res.StatusCode)
			require.Equal(t, test.want, keys)
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

func TestByHeaderIsTheKeyOfAHeader(t *testing.T) {
	key := httplimit.ByHeader("x-api-key")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Empty(t, key(r))
	r.Header.Set("X-Api-Key", "a")
	require.Equal(t, httplimit.HeaderKey("X-API-KEY", "a"), key(r))
	require.Equal(t, "X-Api-Key:"+admission.Digest("a"), key(r))
}
