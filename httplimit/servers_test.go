package httplimit_test

import (
	"net/http"
	"testing"

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
