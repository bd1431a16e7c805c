package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
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
					require.Greater(t, number(t, res.Header, "X-RateLimit-Reset"), int(time.Now().Unix()))
				}
			}
			require.Equal(t, test.used, s.count(t, "192.0.2.1", httplimit.PerMinute(3)))
		})
	}
}

// login is a site that limits failed logins: those with a password are not counted.
func login(t *testing.T, cfg httplimit.Config, backend throttr.Backend) (func(password string) int, *error) {
	cfg.Limits = []throttr.Limit{httplimit.PerMinute(3)}
	limit, err := httplimit.New(throttr.NewRateLimit(backend), cfg)
	require.NoError(t, err)
	refund := new(error)
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		d, _ := httplimit.FromContext(r.Context())
		*refund = d.GiveBack(r.Context())
	}))
	return func(password string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/?password="+password, nil))
		return w.Code
	}, refund
}

func TestHitsCannotBeGivenBack(t *testing.T) {
	b := memory.New()
	defer b.Close()
	post, refund := login(t, httplimit.Config{CountRefusals: true}, b)
	require.Equal(t, 200, post("secret"))
	require.ErrorIs(t, *refund, throttr.ErrUnsupported)
	require.NoError(t, httplimit.Decision{}.GiveBack(t.Context()))
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

// odd is a backend that refuses everything, several takes with windows that do not say so.
type odd struct{ *memory.Backend }

func (odd) Take(context.Context, string, window.Limit, uint64) (window.Window, error) {
	return window.Window{Refused: true}, nil
}

func (odd) TakeAll(context.Context, []window.Take, []window.Window) (bool, error) { return false, nil }

func TestAReservationThatIsNotGrantedIsDenied(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	for _, limits := range [][]throttr.Limit{
		{httplimit.PerHour(100)},
		{httplimit.PerSecond(10), httplimit.PerHour(100)}, // any of them may be the one that refused
	} {
		s := &site{clock: backendtest.NewClock(), limiter: throttr.NewRateLimit(odd{backend})}
		s.wrap(t, httplimit.Config{Limits: limits})
		res := s.get(alice)
		require.Equal(t, 429, res.StatusCode)
		require.Equal(t, "3600", res.Header.Get("Retry-After"), "not 0, after which clients would retry at once")
		require.Zero(t, s.served)
	}
}

func TestPlainKeysHaveAMostOf128Bytes(t *testing.T) {
	var stored string
	seen := throttr.WithObserver(func(_ context.Context, e throttr.Event) { stored = e.Key })
	for _, n := range []int{1, 128, 129, 1 << 20} {
		key := strings.Repeat("k", n)
		s := newSite(t, httplimit.Config{PlainKeys: true, Key: func(*http.Request) string { return key }}, seen)
		s.get(alice)
		if n <= 128 {
			require.Equal(t, "client:k"+key, stored)
		} else {
			require.Len(t, stored, len("client:h")+43, "a digest")
			require.NotContains(t, stored, "kkk")
		}
	}
}
