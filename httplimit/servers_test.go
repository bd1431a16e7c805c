package httplimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/mockserver"
)

// newServerSite returns a site whose backend is a server with values of 1 byte.
func newServerSite(t *testing.T, cfg httplimit.Config) *site {
	t.Helper()
	srv := mockserver.RunT(t, mockserver.WithValueSize(1))
	client, err := throttr.Connect[uint8](t.Context(), throttr.Config{Servers: []string{srv.Addr()}})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	s := &site{limiter: throttr.NewRateLimit(client.Backend())}
	cfg.Clock = time.Now
	s.wrap(t, cfg)
	return s
}

func TestMiddlewareLimitsWithAServer(t *testing.T) {
	s := newServerSite(t, httplimit.Config{Limits: []httplimit.Limit{httplimit.PerMinute(2), httplimit.PerHour(100)}})
	require.Equal(t, []int{202, 202, 429, 429}, s.statuses(4, alice))
	require.Equal(t, []int{202}, s.statuses(1, bob))
	require.Equal(t, `"minute";q=2;w=60, "hour";q=100;w=3600`, s.get(bob).Header.Get("RateLimit-Policy"))
	require.InDelta(t, 60, number(t, s.get(bob).Header, "Retry-After"), 20)
}

func TestLimitTooLargeForTheServerIs500(t *testing.T) {
	s := newServerSite(t, httplimit.Config{Limits: []httplimit.Limit{httplimit.PerMinute(1000)}, OnFailure: httplimit.Serve})
	require.Equal(t, []int{500, 500}, s.statuses(2, alice))
	require.Zero(t, s.served)
}

func TestCostLargerThanServerValuesIsDenied(t *testing.T) {
	s := newServerSite(t, httplimit.Config{
		Limits: []httplimit.Limit{httplimit.PerMinute(10)},
		Cost:   func(r *http.Request) uint64 { return 1 << 40 },
	})
	require.Equal(t, []int{429, 429}, s.statuses(2, alice))
}
