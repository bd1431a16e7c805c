package admission_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
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
		"192.0.2.1:80":              "192.0.2.1",
		"192.0.2.1":                 "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff:ffff:ffff:ffff]:1024": "2001:db8:1:2::/64",
		"[2001:db8:1:3::]:80":                     "2001:db8:1:3::/64",
		"2001:db8::1":                             "2001:db8::/64",
		"[::1]:80":                                "::/64",
		"[::ffff:192.0.2.1]:80":                   "192.0.2.1",
		"[::ffff:192.0.2.1%eth0]:80":              "192.0.2.1",
		"[fe80::1%eth0]:80":                       "fe80::/64",
		"[fe80::2%eth1]:80":                       "fe80::/64",
		"":                                        "unknown",
		"@":                                       "unknown",
		"/run/site.sock":                          "unknown",
		"example.com:80":                          "unknown",
		"192.0.2.1:":                              "unknown",
		"192.0.2.1:http":                          "unknown",
		"192.0.2.1:123456":                        "unknown",
		"192.0.2.01:80":                           "unknown",
		"192.0.2.00:80":                           "unknown",
		"192.0.2.256:80":                          "unknown",
		"192.0.2:80":                              "unknown",
		"192.0.2.1.1:80":                          "unknown",
		"192.0..1:80":                             "unknown",
		".192.0.2.1:80":                           "unknown",
		"192.0.2.:80":                             "unknown",
		"192.0.2.1:_hidden":                       "unknown",
		"0.0.0.0:0":                               "0.0.0.0",
		"255.255.255.255:65535":                   "255.255.255.255",
		"192.0.2.1:80:80":                         "unknown",
		"[192.0.2.1]:80":                          "unknown",
		"[2001:db8::1]80":                         "unknown",
		"[2001:db8::1":                            "unknown",
		"[2001:db8::1]:":                          "unknown",
	} {
		require.Equal(t, want, admission.Addr(remote), remote)
		require.Equal(t, want, keyOf(t, admission.AddrConfig{}, remote), remote)
	}
}

// Behind proxies whose addresses nobody knows, the last elements of the field are theirs.
func TestKeysByPrefixesSocketsAndHops(t *testing.T) {
	const field = "X-Forwarded-For"
	behind := func(prefix string) admission.AddrConfig {
		return admission.AddrConfig{Header: field, Proxies: prefixes(prefix)}
	}
	hops := func(n int) admission.AddrConfig { return admission.AddrConfig{Header: field, Hops: n} }
	unix := admission.AddrConfig{Header: field, UnixProxy: true}
	for _, test := range []struct {
		cfg    admission.AddrConfig
		remote string
		lines  []string
		want   string
	}{
		{admission.AddrConfig{IPv6Bits: 48}, "[2001:db8:1:2::3]:80", nil, "2001:db8:1::/48"},
		{admission.AddrConfig{IPv6Bits: 56}, "[2001:db8:1:2fff::3]:80", nil, "2001:db8:1:2f00::/56"},
		{admission.AddrConfig{IPv6Bits: 128}, "[2001:db8:1:2::3]:80", nil, "2001:db8:1:2::3"},
		{admission.AddrConfig{IPv6Bits: 48}, "192.0.2.1:80", nil, "192.0.2.1"},
		{admission.AddrConfig{IPv4Bits: 24}, "192.0.2.1:80", nil, "192.0.2.0/24"},
		{admission.AddrConfig{IPv4Bits: 24}, "[::ffff:192.0.2.1]:80", nil, "192.0.2.0/24"},
		{admission.AddrConfig{IPv4Bits: 24}, "[2001:db8::3]:80", nil, "2001:db8::/64"},
		{unix, "", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{unix, "@", []string{"203.0.113.9, unknown"}, "unknown"},
		{unix, "@proxy", nil, "unknown"},
		{unix, "/run/proxy.sock", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{unix, "192.0.2.1:1111", []string{"203.0.113.9"}, "192.0.2.1"},
		{unix, "example.com:80", []string{"203.0.113.9"}, "unknown"},
		{behind("10.0.0.1/32"), "10.0.0.1:80", []string{"192.0.2.1"}, "192.0.2.1"},
		{behind("10.0.0.1/32"), "10.0.0.2:80", []string{"192.0.2.1"}, "10.0.0.2"},
		{behind("10.1.2.3/8"), "10.0.0.1:80", []string{"192.0.2.1"}, "192.0.2.1"},
		{behind("::ffff:10.0.0.0/104"), "10.0.0.1:80", []string{"192.0.2.1"}, "192.0.2.1"},
		{behind("::ffff:10.0.0.0/104"), "11.0.0.1:80", []string{"192.0.2.1"}, "11.0.0.1"},
		{hops(1), "198.51.100.1:80", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{hops(2), "198.51.100.1:80", []string{"203.0.113.9, 192.0.2.1", "10.0.0.1"}, "192.0.2.1"},
		{hops(3), "198.51.100.1:80", []string{"192.0.2.1, 10.0.0.1"}, "192.0.2.1"}, // fewer: the first there is
		{hops(2), "198.51.100.1:80", []string{"unknown, 10.0.0.1"}, "10.0.0.1"},
		{hops(2), "198.51.100.1:80", []string{"192.0.2.1, unknown"}, "198.51.100.1"},
		{hops(1), "198.51.100.1:80", nil, "198.51.100.1"},
	} {
		require.Equal(t, test.want, keyOf(t, test.cfg, test.remote, test.lines...), test)
	}
}

func TestXForwardedForNamesTheClient(t *testing.T) {
	proxies := prefixes("10.0.0.0/8", "2001:db8:aaaa::/48")
	const proxy = "10.0.0.1:4711"
	for name, test := range map[string]struct {
		remote string
		lines  []string // of X-Forwarded-For
		want   string
	}{
		"by the proxy":                 {proxy, []string{"192.0.2.1"}, "192.0.2.1"},
		"by a client":                  {"192.0.2.1:1111", []string{"203.0.113.9"}, "192.0.2.1"},
		"by nobody":                    {proxy, nil, "10.0.0.1"},
		"empty":                        {proxy, []string{""}, "10.0.0.1"},
		"a client's part, and proxies": {proxy, []string{"203.0.113.9, 10.1.1.1, 192.0.2.1"}, "192.0.2.1"},
		"lines are joined":             {proxy, []string{"203.0.113.9", "192.0.2.1, 10.0.0.2", "10.0.0.3"}, "192.0.2.1"},
		"spaces, tabs and none":        {proxy, []string{"192.0.2.1,10.0.0.2 ,\t10.0.0.3\t"}, "192.0.2.1"},
		"from within":                  {proxy, []string{"10.9.9.9, 10.0.0.2"}, "10.9.9.9"},
		"unknown":                      {proxy, []string{"203.0.113.9, unknown"}, "10.0.0.1"},
		"unknown at a further proxy":   {proxy, []string{"203.0.113.9, unknown, 10.0.0.2"}, "10.0.0.2"},
		"nothing at a further proxy":   {proxy, []string{"203.0.113.9, , 10.0.0.2"}, "10.0.0.2"},
		"an empty last line":           {proxy, []string{"203.0.113.9", ""}, "10.0.0.1"},
		"a comma at the end":           {proxy, []string{"203.0.113.9,"}, "10.0.0.1"},
		"IPv6 in brackets":             {proxy, []string{"[2001:db8:1:2:3::4]"}, "2001:db8:1:2::/64"},
		"IPv6 with a zone":             {proxy, []string{"fe80::1%eth0"}, "fe80::/64"},
		"IPv4 with a port":             {proxy, []string{"192.0.2.1:80"}, "192.0.2.1"},
		"a socket that is no proxy":    {"@", []string{"192.0.2.1"}, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := admission.AddrConfig{Proxies: proxies, Header: "x-forwarded-for"}
			require.Equal(t, test.want, keyOf(t, cfg, test.remote, test.lines...))

			cfg.Header = "X-Real-IP"
			require.Equal(t, test.want, keyOf(t, cfg, test.remote, test.lines...), "other fields are parsed in the same way")
		})
	}
}

// The client, at 2001:db8:1::1 or 192.0.2.1, sends a field of its own. Each proxy of the chain
// then appends the address of its client.
func TestSpoofedFieldBeforeChainOfProxiesIsIgnored(t *testing.T) {
	proxies := prefixes("10.0.0.0/8", "2001:db8:aaaa::/48", "fe80::/10")
	chains := map[string]struct {
		remote string // address of the nearest proxy
		added  string // what the proxies append, the farthest first
		want   string
	}{
		"one proxy":           {"10.0.0.1:80", "192.0.2.1", "192.0.2.1"},
		"three proxies":       {"10.0.0.1:80", "192.0.2.1, 10.0.0.3, 10.0.0.2", "192.0.2.1"},
		"ports":               {"10.0.0.1:80", "192.0.2.1:4711, 10.0.0.3:1, 10.0.0.2:65535", "192.0.2.1"},
		"IPv6":                {"[2001:db8:aaaa::1]:80", "2001:db8:1::1, 2001:db8:aaaa::2", "2001:db8:1::/64"},
		"IPv6 with ports":     {"[2001:db8:aaaa::1]:80", "[2001:db8:1::1]:4711, [2001:db8:aaaa::2]:80", "2001:db8:1::/64"},
		"a proxy with a zone": {"[fe80::1%eth0]:80", "192.0.2.1", "192.0.2.1"},
		"zones are ignored":   {"[fe80::1%eth0]:80", "2001:db8:1::1%x, fe80::2%eth1", "2001:db8:1::/64"},
		"both families":       {"10.0.0.1:80", "2001:db8:1::1, 10.0.0.2, 2001:db8:aaaa::2, ::ffff:10.0.0.3", "2001:db8:1::/64"},
		"mapped proxies":      {"[::ffff:10.0.0.1]:80", "192.0.2.1, ::ffff:10.0.0.2", "192.0.2.1"},
		"not trusted proxies": {"192.0.2.1:80", "203.0.113.9, 10.0.0.2", "192.0.2.1"},
	}
	spoofed := []string{
		"", "203.0.113.9", "10.0.0.9", "203.0.113.9, 10.0.0.9, 10.0.0.8", "::1", "fe80::1%eth0", "[::1]:80", "[::1", "::1]",
		"192.0.2.1", "unknown", "_hidden", "x", ",", ",,,", "\x00", "\"", "for=203.0.113.9", "203.0.113.9\t", "203.0.113.9;",
		"203.0.113.9:99999", "0.0.0.0/0", "::ffff:203.0.113.9", "203.0.113.09", "1", "localhost", "%",
	}
	for name, c := range chains {
		t.Run(name, func(t *testing.T) {
			cfg := admission.AddrConfig{Proxies: proxies, Header: "X-Forwarded-For"}
			for _, s := range spoofed {
				require.Equal(t, c.want, keyOf(t, cfg, c.remote, s+", "+c.added), "on the same line: %q", s)
				require.Equal(t, c.want, keyOf(t, cfg, c.remote, s, c.added), "on a line of its own: %q", s)
			}
		})
	}
}

func TestNewAddrsRejectsInvalidConfig(t *testing.T) {
	some := prefixes("10.0.0.0/8")
	for name, test := range map[string]struct {
		cfg  admission.AddrConfig
		text string
	}{
		"proxies, no header":         {admission.AddrConfig{Proxies: some}, "no Header"},
		"a socket, no header":        {admission.AddrConfig{UnixProxy: true}, "no Header"},
		"a header, no proxies":       {admission.AddrConfig{Header: "X-Forwarded-For"}, "no proxy"},
		"hops, no header":            {admission.AddrConfig{Hops: 1}, "no Header"},
		"negative hops":              {admission.AddrConfig{Hops: -1, Header: "X"}, "Hops is at least 0"},
		"hops and a socket":          {admission.AddrConfig{Hops: 1, Header: "X", UnixProxy: true}, "not beside Proxies or UnixProxy"},
		"hops and proxies":           {admission.AddrConfig{Hops: 1, Header: "X", Proxies: some}, "not beside Proxies or UnixProxy"},
		"RFC 7239":                   {admission.AddrConfig{Proxies: some, Header: "forwarded"}, "let the proxies set X-Forwarded-For"},
		"not a field name":           {admission.AddrConfig{Proxies: some, Header: "X Forwarded"}, "not the name of a header field"},
		"IPv6Bits":                   {admission.AddrConfig{IPv6Bits: 129}, "IPv6Bits is 1 to 128"},
		"IPv4Bits":                   {admission.AddrConfig{IPv4Bits: -1}, "IPv4Bits is 1 to 32"},
		"a zero prefix":              {admission.AddrConfig{Proxies: make([]netip.Prefix, 1), Header: "X"}, "invalid"},
		"all of IPv4":                {admission.AddrConfig{Proxies: prefixes("0.0.0.0/0"), Header: "X"}, "every address"},
		"all of IPv6":                {admission.AddrConfig{Proxies: prefixes("::/0"), Header: "X"}, "every address"},
		"all of IPv4, mapped":        {admission.AddrConfig{Proxies: prefixes("::ffff:0.0.0.0/96"), Header: "X"}, "every address"},
		"one of them is all of IPv6": {admission.AddrConfig{Proxies: append(prefixes("::/0"), some...), Header: "X"}, "every address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admission.NewAddrs(test.cfg)
			require.ErrorIs(t, err, throttr.ErrConfig)
			require.ErrorContains(t, err, test.text)
		})
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
