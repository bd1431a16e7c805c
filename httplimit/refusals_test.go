package httplimit_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/window"
)

func TestCostsAreFreeIfRefused(t *testing.T) {
	for name, test := range map[string]struct {
		costs    []uint64
		statuses []int
		used     uint64
	}{
		"it adds up":                {[]uint64{2, 2, 1, 1}, []int{202, 429, 202, 429}, 3},
		"0 is served":               {[]uint64{0, 3, 1, 0}, []int{202, 202, 429, 202}, 3},
		"more than the limit":       {[]uint64{4, 3, 1}, []int{429, 202, 429}, 3},
		"the largest cost":          {[]uint64{1<<63 - 1, 1}, []int{429, 202}, 1},
		"0 after more than allowed": {[]uint64{9, 0}, []int{429, 202}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var cost uint64
			s := newSite(t, httplimit.Config{Cost: func(*http.Request, throttr.Limit) uint64 { return cost }, Legacy: httplimit.LegacyUnix})
			for i, c := range test.costs {
				cost = c
				res := s.get(alice)
				require.Equal(t, test.statuses[i], res.StatusCode, i)
				if c > 3 {
					require.Empty(t, res.Header.Get("Retry-After"), "waiting does not help")
					require.Empty(t, res.Header.Get("RateLimit"), "no store was asked")
				} else {
					require.Greater(t, number(t, res.Header, "X-RateLimit-Reset"), int(s.clock.Now().Unix()))
				}
			}
			require.Equal(t, test.used, s.count(t, "192.0.2.1", httplimit.PerMinute(3)))
		})
	}
}

// A client that makes up keys until the backend is full must not get around its limits by that.
func TestAFullBackendDoesNotLiftTheLimit(t *testing.T) {
	for name, full := range map[string]error{
		"servers": &throttr.RequestError{Err: throttr.ErrFull},
		"another": fmt.Errorf("store: %w", window.ErrFull),
	} {
		for status, answer := range map[int]httplimit.Answer{503: nil, 202: httplimit.Serve} {
			for _, hits := range []bool{false, true} {
				s := newBrokenSite(t, httplimit.Config{OnFailure: answer, CountRefusals: hits}, always(full))
				res := s.get(alice)
				require.Equal(t, status, res.StatusCode, name)
				require.Equal(t, status == 503, res.Header.Get("Retry-After") == "5", name)
			}
		}
	}
	s := newBrokenSite(t, httplimit.Config{}, always(errDown))
	require.Equal(t, []int{202, 202}, s.statuses(2, alice), "an outage is not one of the site")
}
