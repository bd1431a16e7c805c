package httplimit_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

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
