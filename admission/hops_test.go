package admission_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// Behind proxies whose addresses nobody knows, the last elements of the field are theirs.
func TestHopsCountFromTheEnd(t *testing.T) {
	for _, test := range []struct {
		hops  int
		lines []string
		want  string
	}{
		{1, []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{1, []string{"203.0.113.9", "192.0.2.1"}, "192.0.2.1"},
		{2, []string{"203.0.113.9, 192.0.2.1, 10.0.0.1"}, "192.0.2.1"},
		{2, []string{"203.0.113.9, 192.0.2.1", "10.0.0.1"}, "192.0.2.1"},
		{3, []string{"192.0.2.1, 10.0.0.1"}, "192.0.2.1"}, // fewer: the first there is
		{2, []string{"unknown, 10.0.0.1"}, "10.0.0.1"},
		{2, []string{"192.0.2.1, unknown"}, "198.51.100.1"},
		{1, nil, "198.51.100.1"},
	} {
		cfg := admission.AddrConfig{Header: "X-Forwarded-For", Hops: test.hops}
		require.Equal(t, test.want, keyOf(t, cfg, "198.51.100.1:80", test.lines...), test)
	}
	for _, cfg := range []admission.AddrConfig{
		{Hops: 1}, {Hops: -1, Header: "X-Forwarded-For"}, {Hops: 1, Header: "X-Forwarded-For", UnixProxy: true},
		{Hops: 1, Header: "X-Forwarded-For", Proxies: prefixes("10.0.0.0/8")},
	} {
		_, err := admission.NewAddrs(cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
	}
}
