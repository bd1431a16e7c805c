package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/memory"
)

// X-RateLimit-Reset is the same moment as seconds and as a time, whatever the algorithm is.
func TestResetAsATimeIsResetInSeconds(t *testing.T) {
	for a := throttr.FixedWindow; a <= limits.LastAlgorithm; a++ {
		for _, hits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				responses := map[httplimit.Legacy][]int64{}
				for _, legacy := range []httplimit.Legacy{httplimit.LegacySeconds, httplimit.LegacyUnix} {
					b := memory.New(memory.WithClock(time.Now))
					defer b.Close()
					handler := limited(t, b, a, legacy, hits)
					for _, cost := range []string{"0", "6", "4", "1", "5", "11"} {
						reset := resetOf(t, handler, cost)
						if legacy == httplimit.LegacyUnix && reset >= 0 {
							reset -= time.Now().Unix()
						}
						responses[legacy] = append(responses[legacy], reset)
					}
				}
				require.Equal(t, responses[httplimit.LegacySeconds], responses[httplimit.LegacyUnix], "%v, hits %v", a, hits)
			})
		}
	}
}

// limited returns a handler with a limit of 10 a minute. The path of a request is its cost.
func limited(t *testing.T, b throttr.Backend, a throttr.Algorithm, legacy httplimit.Legacy, hits bool) http.Handler {
	limit, err := httplimit.New(throttr.NewRateLimit(b), httplimit.Config{
		Limits: []throttr.Limit{{Name: "x", Max: 10, Scale: time.Minute, Algorithm: a}}, Legacy: legacy, CountRefusals: hits,
		Cost: func(r *http.Request, _ throttr.Limit) uint64 {
			n, _ := strconv.ParseUint(r.URL.Path[1:], 10, 64)
			return n
		},
	})
	require.NoError(t, err)
	return limit(http.NotFoundHandler())
}

// resetOf returns X-RateLimit-Reset of a request, -1 if there is none.
func resetOf(t *testing.T, handler http.Handler, cost string) int64 {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+cost, nil))
	field := w.Header().Get("X-RateLimit-Reset")
	if field == "" {
		return -1
	}
	reset, err := strconv.ParseInt(field, 10, 64)
	require.NoError(t, err)
	return reset
}
