package admission_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/admission"
)

// The client, at 2001:db8:1::1 or 192.0.2.1, sends a field of its own. Each proxy of the chain
// then appends the address of its client.
//
//evidence:http A forged X-Forwarded-For gains nothing
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
