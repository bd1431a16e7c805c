package httplimit_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/httplimit"
)

func prefixes(all ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(all))
	for i, p := range all {
		ps[i] = netip.MustParsePrefix(p)
	}
	return ps
}

func TestASpoofedFieldDoesNotHelpAgainstTheLimit(t *testing.T) {
	key, err := httplimit.ByAddr(httplimit.AddrConfig{Proxies: prefixes("10.0.0.0/8"), Header: "X-Forwarded-For"})
	require.NoError(t, err)
	s := newSite(t, httplimit.Config{Key: key})
	var statuses []int
	for _, spoofed := range []string{"1.1.1.1", "2.2.2.2", "10.0.0.3", "x", ""} {
		res := s.get("10.0.0.1:80", header("X-Forwarded-For", spoofed), header("X-Forwarded-For", "192.0.2.1"))
		statuses = append(statuses, res.StatusCode)
	}
	require.Equal(t, []int{202, 202, 202, 429, 429}, statuses)
}
