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
	s.wrap(t, cfg)
	return s
}

// Plans are not known when the middleware is made.
func TestPlanTooLargeForTheServerIs500(t *testing.T) {
	large := httplimit.MustPlan(httplimit.PerMinute(1000))
	s := newServerSite(t, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerMinute(100)}, OnFailure: httplimit.Serve,
		Plan: func(*http.Request) (*httplimit.Plan, error) { return large, nil },
	})
	require.Equal(t, []int{500, 500}, s.statuses(2, alice))
	require.Zero(t, s.served)
	require.ErrorIs(t, large.Check(s.limiter), throttr.ErrRange)
	require.NoError(t, httplimit.MustPlan(httplimit.PerMinute(100)).Check(s.limiter))
}

func TestLimitsThatTheBackendCantKeepAreRefusedAtTheStart(t *testing.T) {
	for _, c := range []struct {
		size  int
		limit throttr.Limit
		match error
		text  string
	}{
		{1, httplimit.PerMinute(300), throttr.ErrRange, `limit "minute": throttr: Max 300 is out of range`},
		{2, httplimit.PerHour(100_000), throttr.ErrRange, `limit "hour": throttr: Max 100000 is out of range`},
		{2, throttr.Limit{Name: "odd", Max: 5, Scale: 90500 * time.Millisecond}, throttr.ErrRange, `limit "odd": throttr: Scale 1m30.5s is out of range`},
		{2, throttr.Limit{Name: "day", Max: 5, Scale: 24*time.Hour + time.Second}, throttr.ErrRange, `limit "day": throttr: Scale 24h0m1s is out of range`},
		{2, throttr.Limit{Name: "bucket", Max: 5, Scale: time.Second, Algorithm: throttr.TokenBucket}, throttr.ErrUnsupported, "token-bucket"},
		{8, throttr.Limit{Name: "unit", Max: 5, Scale: 60}, throttr.ErrScale, "did you forget the unit?"},
	} {
		srv := mockserver.RunT(t, mockserver.WithValueSize(c.size))
		backend, err := throttr.Open(t.Context(), "throttr://"+srv.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { backend.Close() })
		wrap, err := httplimit.New(throttr.NewRateLimit(backend), httplimit.Config{Limits: []throttr.Limit{c.limit}})
		require.Nil(t, wrap)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorIs(t, err, c.match)
		require.ErrorContains(t, err, c.text)
	}
}
