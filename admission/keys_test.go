package admission_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func prefixes(all ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(all))
	for i, p := range all {
		ps[i] = netip.MustParsePrefix(p)
	}
	return ps
}

// keyOf returns the key of a request from remote with the given lines of the header field.
func keyOf(t testing.TB, cfg admission.AddrConfig, remote string, lines ...string) string {
	t.Helper()
	addrs, err := admission.NewAddrs(cfg)
	require.NoError(t, err)
	header := http.Header{}
	for _, l := range lines {
		header.Add(cfg.Header, l)
	}
	return addrs.Key(remote, header.Values)
}

func TestTheRemoteAddressIsTheKeyWithoutProxies(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80":               "192.0.2.1",
		"192.0.2.1":                  "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":  "2001:db8:1:2::/64",
		"2001:db8::1":                "2001:db8::/64",
		"[::1]:80":                   "::/64",
		"[::ffff:192.0.2.1]:80":      "192.0.2.1",
		"[::ffff:192.0.2.1%eth0]:80": "192.0.2.1",
		"[fe80::1%eth0]:80":          "fe80::/64",
		"":                           "unknown",
		"@":                          "unknown",
		"/run/site.sock":             "unknown",
		"example.com:80":             "unknown",
		"192.0.2.1:http":             "unknown",
		"192.0.2.01:80":              "unknown",
		"192.0.2.256:80":             "unknown",
		"192.0.2.1:80:80":            "unknown",
		"[192.0.2.1]:80":             "unknown",
		"[2001:db8::1":               "unknown",
		"[2001:db8::1]:":             "unknown",
	} {
		require.Equal(t, want, admission.Addr(remote), remote)
		require.Equal(t, want, keyOf(t, admission.AddrConfig{}, remote), remote)
	}
}

func TestKeysBehindProxies(t *testing.T) {
	const field, proxy, someone = "x-forwarded-for", "10.0.0.1:80", "198.51.100.1:80"
	type cfg = admission.AddrConfig
	behind := func(prefix string) cfg { return cfg{Header: field, Proxies: prefixes(prefix)} }
	hops := func(n int) cfg { return cfg{Header: "X-Real-IP", Hops: n} } // of proxies whose addresses nobody knows
	unix, tens := cfg{Header: field, UnixProxy: true}, behind("10.0.0.0/8")
	for _, test := range []struct {
		cfg    cfg
		remote string
		lines  []string
		want   string
	}{
		{cfg{IPv6Bits: 56}, "[2001:db8:1:2fff::3]:80", nil, "2001:db8:1:2f00::/56"},
		{cfg{IPv6Bits: 128}, "[2001:db8:1:2::3]:80", nil, "2001:db8:1:2::3"},
		{cfg{IPv6Bits: 48}, "192.0.2.1:80", nil, "192.0.2.1"},
		{cfg{IPv4Bits: 24}, "[::ffff:192.0.2.1]:80", nil, "192.0.2.0/24"},
		{cfg{IPv4Bits: 24}, "[2001:db8::3]:80", nil, "2001:db8::/64"},
		{unix, "", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{unix, "@", []string{"203.0.113.9, unknown"}, "unknown"},
		{unix, "@proxy", nil, "unknown"},
		{unix, "/run/proxy.sock", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{unix, "192.0.2.1:1111", []string{"203.0.113.9"}, "192.0.2.1"},
		{unix, "example.com:80", []string{"203.0.113.9"}, "unknown"},
		{behind("10.0.0.1/32"), proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		{behind("10.0.0.1/32"), "10.0.0.2:80", []string{"192.0.2.1"}, "10.0.0.2"},
		{behind("10.1.2.3/8"), proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		{behind("::ffff:10.0.0.0/104"), proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		{behind("::ffff:10.0.0.0/104"), "11.0.0.1:80", []string{"192.0.2.1"}, "11.0.0.1"},
		{tens, "192.0.2.1:1111", []string{"203.0.113.9"}, "192.0.2.1"},
		{tens, "@", []string{"192.0.2.1"}, "unknown"},
		{tens, proxy, nil, "10.0.0.1"},
		{tens, proxy, []string{""}, "10.0.0.1"},
		{tens, proxy, []string{"203.0.113.9, 10.1.1.1, 192.0.2.1"}, "192.0.2.1"},
		{tens, proxy, []string{"203.0.113.9", "192.0.2.1, 10.0.0.2", "10.0.0.3"}, "192.0.2.1"},
		{tens, proxy, []string{"192.0.2.1,10.0.0.2 ,\t10.0.0.3\t"}, "192.0.2.1"},
		{tens, proxy, []string{"10.9.9.9, 10.0.0.2"}, "10.9.9.9"},
		{tens, proxy, []string{"203.0.113.9, unknown, 10.0.0.2"}, "10.0.0.2"},
		{tens, proxy, []string{"203.0.113.9, , 10.0.0.2"}, "10.0.0.2"},
		{tens, proxy, []string{"203.0.113.9", ""}, "10.0.0.1"},
		{tens, proxy, []string{"203.0.113.9,"}, "10.0.0.1"},
		{tens, proxy, []string{"[2001:db8:1:2:3::4]"}, "2001:db8:1:2::/64"},
		{hops(1), someone, []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{hops(2), someone, []string{"203.0.113.9, 192.0.2.1", "10.0.0.1"}, "192.0.2.1"},
		{hops(3), someone, []string{"192.0.2.1, 10.0.0.1"}, "192.0.2.1"}, // fewer: the first there is
		{hops(2), someone, []string{"unknown, 10.0.0.1"}, "10.0.0.1"},
		{hops(2), someone, []string{"192.0.2.1, unknown"}, "198.51.100.1"},
		{hops(1), someone, nil, "198.51.100.1"},
	} {
		require.Equal(t, test.want, keyOf(t, test.cfg, test.remote, test.lines...), test)
	}
}

// The client, at 2001:db8:1::1 or 192.0.2.1, sends a field of its own. Each proxy of the chain
// then appends the address of its client.
func TestSpoofedFieldBeforeChainOfProxiesIsIgnored(t *testing.T) {
	proxies := prefixes("10.0.0.0/8", "2001:db8:aaaa::/48", "fe80::/10")
	spoofed := []string{
		"", "203.0.113.9", "10.0.0.9", "203.0.113.9, 10.0.0.9, 10.0.0.8", "fe80::1%eth0", "[::1]:80", "[::1", "::1]",
		"unknown", ",", ",,,", "\x00", "\"", "for=203.0.113.9", "203.0.113.9\t", "203.0.113.9:99999", "::ffff:203.0.113.9", "%",
	}
	cfg := admission.AddrConfig{Proxies: proxies, Header: "X-Forwarded-For"}
	for _, chain := range []struct{ remote, added, want string }{ // the nearest proxy; what they append, the farthest first
		{"10.0.0.1:80", "192.0.2.1", "192.0.2.1"},
		{"10.0.0.1:80", "192.0.2.1:4711, 10.0.0.3:1, 10.0.0.2:65535", "192.0.2.1"},
		{"[2001:db8:aaaa::1]:80", "[2001:db8:1::1]:4711, [2001:db8:aaaa::2]:80", "2001:db8:1::/64"},
		{"[fe80::1%eth0]:80", "2001:db8:1::1%x, fe80::2%eth1", "2001:db8:1::/64"},
		{"10.0.0.1:80", "2001:db8:1::1, 10.0.0.2, 2001:db8:aaaa::2, ::ffff:10.0.0.3", "2001:db8:1::/64"},
		{"[::ffff:10.0.0.1]:80", "192.0.2.1, ::ffff:10.0.0.2", "192.0.2.1"},
		{"192.0.2.1:80", "203.0.113.9, 10.0.0.2", "192.0.2.1"}, // no proxy
	} {
		for _, s := range spoofed {
			require.Equal(t, chain.want, keyOf(t, cfg, chain.remote, s+", "+chain.added), "on the same line: %q", s)
			require.Equal(t, chain.want, keyOf(t, cfg, chain.remote, s, chain.added), "on a line of its own: %q", s)
		}
	}
}

func TestNewAddrsRejectsInvalidConfig(t *testing.T) {
	some := prefixes("10.0.0.0/8")
	for _, test := range []struct {
		cfg  admission.AddrConfig
		text string
	}{
		{admission.AddrConfig{Proxies: some}, "no Header"},
		{admission.AddrConfig{UnixProxy: true}, "no Header"},
		{admission.AddrConfig{Header: "X-Forwarded-For"}, "no proxy"},
		{admission.AddrConfig{Hops: 1}, "no Header"},
		{admission.AddrConfig{Hops: -1, Header: "X"}, "Hops is at least 0"},
		{admission.AddrConfig{Hops: 1, Header: "X", UnixProxy: true}, "not beside Proxies or UnixProxy"},
		{admission.AddrConfig{Hops: 1, Header: "X", Proxies: some}, "not beside Proxies or UnixProxy"},
		{admission.AddrConfig{Proxies: some, Header: "forwarded"}, "let the proxies set X-Forwarded-For"},
		{admission.AddrConfig{Proxies: some, Header: "X Forwarded"}, "not the name of a header field"},
		{admission.AddrConfig{IPv6Bits: 129}, "IPv6Bits is 1 to 128"},
		{admission.AddrConfig{IPv4Bits: -1}, "IPv4Bits is 1 to 32"},
		{admission.AddrConfig{Proxies: make([]netip.Prefix, 1), Header: "X"}, "invalid"},
		{admission.AddrConfig{Proxies: append(prefixes("0.0.0.0/0"), some...), Header: "X"}, "every address"},
		{admission.AddrConfig{Proxies: prefixes("::ffff:0.0.0.0/96"), Header: "X"}, "every address"},
	} {
		_, err := admission.NewAddrs(test.cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, test.text)
	}
}

// FuzzForwardedAddresses lets a client send arbitrary fields, to which proxies append the correct addresses. The key must
// be the real address of the client.
func FuzzForwardedAddresses(f *testing.F) {
	for _, s := range []string{"", "203.0.113.9", "10.0.0.3", ",", "[::1", "]", "[]:80"} {
		f.Add(s, s, uint32(0xc0000201), uint8(0), true)
		f.Add(s, "x", uint32(0xcb007109), uint8(3), false)
	}
	proxies := prefixes("10.0.0.0/8")
	addrs, err := admission.NewAddrs(admission.AddrConfig{Proxies: proxies, Header: "X-Forwarded-For"})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, first, second string, client uint32, hops uint8, sameLine bool) {
		key := func(remote string, lines ...string) string {
			return addrs.Key(remote, http.Header{"X-Forwarded-For": lines}.Values)
		}
		for _, remote := range []string{first, second, "10.0.0.1:80"} {
			requireKey(t, key(remote, first, second))
		}
		addr := netip.AddrFrom4([4]byte{byte(client >> 24), byte(client >> 16), byte(client >> 8), byte(client)})
		if proxies[0].Contains(addr) {
			return
		}
		wrote := addr.String() + strings.Repeat(", 10.0.0.2", int(hops%4))
		lines := []string{first, second, wrote}
		if sameLine {
			lines = []string{first, second + ", " + wrote}
		}
		require.Equal(t, addr.String(), key("10.0.0.1:80", lines...), "%q", lines)
	})
}

// requireKey requires that a key is an address or a prefix in its canonical form, or "unknown".
func requireKey(t *testing.T, key string) {
	if key == "unknown" {
		return
	}
	if p, err := netip.ParsePrefix(key); err == nil {
		require.Equal(t, p.Masked().String(), key)
		require.Equal(t, 64, p.Bits())
		require.True(t, p.Addr().Is6() && !p.Addr().Is4In6())
		return
	}
	addr, err := netip.ParseAddr(key)
	require.NoError(t, err)
	require.Equal(t, addr.String(), key)
	require.True(t, addr.Is4(), key)
}

// Addresses and what everybody shares are stored as they are, other keys as digests, and what only looks like an
// address, too.
func TestKeysAreStoredAsDigestsUnlessTheyArePlain(t *testing.T) {
	digests, plain := newGate(t, admission.Config{}), newGate(t, admission.Config{PlainKeys: true})
	long := strings.Repeat("k", 129)
	digest := func(key string) string { return "client:h" + admission.Digest(key) }
	for _, test := range []struct {
		key         admission.Key
		want, plain string
	}{
		{admission.Key{Text: "ann"}, digest("ann"), "client:kann"},
		{admission.Key{Text: "192.0.2.1", Plain: true}, "client:k192.0.2.1", "client:k192.0.2.1"},
		{admission.Key{Text: "192.0.2.1"}, digest("192.0.2.1"), digest("192.0.2.1")},
		{admission.Key{Text: "2001:db8::/64"}, digest("2001:db8::/64"), digest("2001:db8::/64")},
		{admission.Key{Text: "unknown"}, digest("unknown"), digest("unknown")},
		{admission.Key{Text: "everyone"}, digest("everyone"), digest("everyone")},
		{admission.Everyone, "client:keveryone", "client:keveryone"},
		{admission.Key{Text: long, Plain: true}, digest(long), digest(long)},
		{admission.Key{Text: long[:128]}, digest(long[:128]), "client:k" + long[:128]},
		{admission.Key{Text: "h" + admission.Digest(long)}, digest("h" + admission.Digest(long)), "client:kh" + admission.Digest(long)},
	} {
		require.Equal(t, test.want, digests.StoredKey(test.key))
		require.Equal(t, test.plain, plain.StoredKey(test.key))
	}
	d := plain.Admit(t.Context(), request(long))
	require.Equal(t, long, d.Strictest.Key, "the handler sees the key unchanged")
}

// FuzzKeysStayApart compares the keys under which two requests are counted. They are equal only if the keys of the
// requests are equal.
func FuzzKeysStayApart(f *testing.F) {
	long := string(make([]byte, 129))
	f.Add("a", "b", true)
	f.Add(long, long+"x", false)
	f.Add("", "192.0.2.1", true)
	f.Fuzz(func(t *testing.T, key1, key2 string, plain bool) {
		gate, err := admission.New(throttr.NewRateLimit(memory.New(memory.WithCleanPeriod(0))), admission.Config{
			Limits: []throttr.Limit{minute}, PlainKeys: plain,
		})
		require.NoError(t, err)
		stored := func(text string) string { return gate.StoredKey(admission.Key{Text: text}) }
		require.Equal(t, key1 == key2, stored(key1) == stored(key2))
		require.NotEqual(t, gate.StoredKey(admission.Key{Text: "192.0.2.1", Plain: true}), stored(key1))
	})
}

// flaky returns a backend whose calls for limits of a name fail.
func flaky(b throttr.Backend, name string, err error) throttr.Backend {
	return testkit.Hooked{Backend: b, Around: func(_ context.Context, _ string, takes []window.Take, do func() error) error {
		if slices.ContainsFunc(takes, func(t window.Take) bool { return t.Limit.Name == name }) {
			return err
		}
		return do()
	}}
}

// costs returns a request of a key whose costs are those of the names of limits, and of others 1.
func costs(of map[string]uint64) admission.Request {
	r := request("k")
	r.Cost = func(l throttr.Limit) uint64 {
		if n, ok := of[l.Name]; ok {
			return n
		}
		return 1
	}
	return r
}

// Without a plan, the limits of the Config apply. If requests in flight are all that it has, the request could not be
// counted.
func TestAPlanThatIsNotKnown(t *testing.T) {
	unknown := errors.New("no database")
	r := request("k")
	r.PlanErr = unknown
	d := newGate(t, admission.Config{FailClosed: true}).Admit(t.Context(), r)
	require.NoError(t, d.Err)
	require.EqualValues(t, 1, d.Strictest.Count)

	cfg := admission.Config{Limits: []throttr.Limit{}, OnlyPlans: true, FailClosed: true, InFlight: exports, Places: newPlaces(t, memory.New())}
	d = newGate(t, cfg).Admit(t.Context(), r)
	defer d.Done()
	require.ErrorIs(t, d.Err, unknown)
	require.Equal(t, admission.Unavailable, d.Verdict())
}

// A length of -1 that was converted is a mistake in the program: no store is asked, and the error says whose it is.
func TestACostOutOfRangeIsAMistake(t *testing.T) {
	for _, hits := range []bool{false, true} {
		gate := newGate(t, admission.Config{Limits: []throttr.Limit{minute, tokens}, CountRefusals: hits})
		d := gate.Admit(t.Context(), costs(map[string]uint64{"tokens": 1<<64 - 1}))
		require.Equal(t, admission.Misconfigured, d.Verdict())
		var bad *throttr.RangeError
		require.ErrorAs(t, d.Err, &bad)
		require.Equal(t, "Cost", bad.Field)
		require.ErrorContains(t, d.Err, `limit "tokens": `)
		require.Equal(t, []uint64{0, 0}, counts(t, gate, request("k")))
	}
}

// With plans, a name that is misspelt or forgotten, in a plan or in Keyed, is a mistake: the limit would count by another
// key, such as the address.
func TestWithPlansAllLimitsHaveKeysOfTheirOwnOrNone(t *testing.T) {
	hour := func(name string) throttr.Limit { return throttr.Limit{Name: name, Max: 2, Scale: time.Hour} }
	keyed := map[string]admission.Key{"account": {}, "all": admission.Everyone}
	cfg := admission.Config{Limits: []throttr.Limit{hour("all")}, OnlyPlans: true, Keyed: keyed}
	known := admission.MustPlan(hour("account"), hour("all"))
	misspelt := admission.MustPlan(hour("acount"), hour("all"))
	flight, err := known.WithInFlight(exports)
	require.NoError(t, err)
	gate := newGate(t, cfg)
	require.NoError(t, gate.Check(known))
	require.NoError(t, gate.Check(new(admission.Plan)))
	require.NoError(t, newGate(t, admission.Config{OnlyPlans: true}).Check(misspelt), "all count by the key of the request")
	require.ErrorContains(t, gate.Check(misspelt), `limit "acount" has no key of its own`)
	require.ErrorContains(t, gate.Check(flight), `limit "exports" is on requests in flight`)
	r := admission.Request{Addr: "192.0.2.1", Keys: map[string]admission.Key{"account": {Text: "ann"}}}
	for _, test := range []struct {
		plan *admission.Plan
		want admission.Verdict
	}{
		{nil, admission.Serve}, {known, admission.Serve}, {misspelt, admission.Misconfigured},
		{new(admission.Plan), admission.Serve}, {known, admission.Deny}, {misspelt, admission.Misconfigured},
	} {
		r.Plan = test.plan
		d := gate.Admit(t.Context(), r)
		require.Equal(t, test.want, d.Verdict())
		require.Equal(t, test.want == admission.Misconfigured, errors.Is(d.Err, throttr.ErrConfig))
	}
	cfg.Places = newPlaces(t, memory.New())
	require.ErrorContains(t, newGate(t, cfg).Check(flight), `limit "exports" has no key of its own`)
	cfg.InFlight = exports
	for text, limits := range map[string][]throttr.Limit{`"exports"`: {hour("account")}, `"acount"`: {hour("acount")}} {
		cfg.Limits = limits
		_, err = admission.New(throttr.NewRateLimit(memory.New()), cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, "limit "+text+" has no key of its own")
	}
	cfg.OnlyPlans = false
	newGate(t, cfg)
}

// Peek and Reset say so if they are not told what to look at, and leave alone what others share.
func TestPeekAndResetNeedTheKeysOfLimits(t *testing.T) {
	cfg := admission.Config{
		Limits:   []throttr.Limit{{Name: "all", Max: 2, Scale: time.Second}, {Name: "tenant", Max: 2, Scale: time.Minute}, {Name: "hour", Max: 2, Scale: time.Hour}},
		InFlight: exports, Places: newPlaces(t, memory.New()),
		Keyed: map[string]admission.Key{"all": admission.Everyone, "tenant": {}, "exports": {}},
	}
	gate := newGate(t, cfg)
	clear(cfg.Keyed) // the Gate has a copy
	of := admission.Request{Addr: "192.0.2.1", Keys: map[string]admission.Key{"tenant": {Text: "t"}, "exports": {Text: "e"}}}
	all := of
	all.Keys = map[string]admission.Key{"all": admission.Everyone, "tenant": {Text: "t"}, "exports": {}}
	defer gate.Admit(t.Context(), all).Done()
	defer gate.Admit(t.Context(), of).Done()
	require.Equal(t, []uint64{2, 2, 2, 1}, counts(t, gate, of))
	require.Equal(t, []uint64{2, 2, 2}, counts(t, gate, all))
	for _, keys := range []map[string]admission.Key{nil, {"tenant": {}}, {"exports": {Text: "e"}}} {
		r := admission.Request{Addr: "192.0.2.1", Keys: keys}
		_, err := gate.Peek(t.Context(), r)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, "has no key of its own, as others have")
		require.ErrorIs(t, gate.Reset(t.Context(), r), throttr.ErrConfig)
	}
	for _, skip := range []bool{false, true} { // then no limit applies
		unkeyed := newGate(t, admission.Config{SkipEmptyKey: skip})
		_, err := unkeyed.Peek(t.Context(), admission.Request{})
		require.Equal(t, !skip, errors.Is(err, throttr.ErrConfig), err)
		require.Equal(t, !skip, errors.Is(unkeyed.Reset(t.Context(), admission.Request{}), throttr.ErrConfig))
		counts(t, unkeyed, admission.Request{Addr: admission.Addr("@")})
	}
	require.NoError(t, gate.Reset(t.Context(), of))
	require.Equal(t, []uint64{2, 0, 0}, counts(t, gate, all), "the window of everyone goes on")
	require.NoError(t, gate.Reset(t.Context(), all))
	require.Equal(t, []uint64{0, 0, 0}, counts(t, gate, all))
	r := admission.Request{Addr: "192.0.2.1", Plan: admission.MustPlan(throttr.Limit{Name: "hour", Max: 2, Scale: time.Hour})}
	r.Keys = map[string]admission.Key{"exports": {}}
	require.Equal(t, []uint64{0}, counts(t, gate, r), "only the limits of the plan need keys")

	// Admit counts what it is not told by the address.
	d := gate.Admit(t.Context(), admission.Request{Addr: "192.0.2.1"})
	defer d.Done()
	require.Equal(t, "192.0.2.1", d.Outcomes[1].Key)

	_, err := newGateOn(t, flaky(memory.New(), "minute", errDown), admission.Config{}).Peek(t.Context(), request("k"))
	require.ErrorIs(t, err, errDown)
}

// As hits, requests go from the shortest limit to the longest, up to the first that denies.
func TestHitsGoUpToTheLimitThatDenies(t *testing.T) {
	hour := func(most uint64) throttr.Limit { return throttr.Limit{Name: "hour", Max: most, Scale: time.Hour} }
	gate := newGate(t, admission.Config{Limits: []throttr.Limit{hour(2), minute}, CountRefusals: true})
	for i, want := range [][]uint64{{1, 1}, {2, 2}, {3, 3}, {4, 3}, {5, 3}} { // in minute and hour
		d := gate.Admit(t.Context(), request("k"))
		require.Equal(t, i < 2, d.Allowed)
		require.Equal(t, i < 2, d.Strictest.Allowed)
		require.Equal(t, i > 2, d.Strictest.Name == "minute")
		require.Equal(t, want, counts(t, gate, request("k")))
	}
	gate = newGate(t, admission.Config{Limits: []throttr.Limit{hour(3), minute}})
	require.Equal(t, "hour", gate.Admit(t.Context(), request("k")).Strictest.Name, "of two with the same remaining, the longer one")
}

// Takes are free if they are refused, and hits are not. A limit in which a request costs nothing does not apply to it.
func TestCostsAreCounted(t *testing.T) {
	const ok, deny = admission.Serve, admission.Deny
	for name, test := range map[string]struct {
		hits     bool
		costs    []uint64
		verdicts []admission.Verdict
		count    uint64
	}{
		"they add up":         {false, []uint64{2, 2, 1, 1}, []admission.Verdict{ok, deny, ok, deny}, 3},
		"0":                   {false, []uint64{0, 3, 1, 0}, []admission.Verdict{ok, ok, deny, ok}, 3},
		"more than the limit": {false, []uint64{4, 0, 3, 1}, []admission.Verdict{deny, ok, ok, deny}, 3},
		"the largest":         {false, []uint64{1<<63 - 1, 1}, []admission.Verdict{deny, ok}, 1},
		"hits add up":         {true, []uint64{2, 2, 1}, []admission.Verdict{ok, deny, deny}, 5},
		"hits of 0":           {true, []uint64{0, 3, 0}, []admission.Verdict{ok, ok, ok}, 3},
		"hits of 0 beyond it": {true, []uint64{3, 1, 0}, []admission.Verdict{ok, deny, ok}, 4},
		"a hit of more":       {true, []uint64{4, 1}, []admission.Verdict{deny, ok}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			gate := newGate(t, admission.Config{CountRefusals: test.hits})
			var verdicts []admission.Verdict
			for _, n := range test.costs {
				d := gate.Admit(t.Context(), costing("k", n))
				verdicts = append(verdicts, d.Verdict())
				require.Equal(t, n == 0 || n > minute.Max, d.LimitField() == "", "then no store was asked")
			}
			require.Equal(t, test.verdicts, verdicts)
			require.Equal(t, []uint64{test.count}, counts(t, gate, request("k")))
		})
	}
}
