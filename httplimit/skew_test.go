package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func TestFieldsDoNotDependOnTheClockOfTheBackend(t *testing.T) {
	for _, skew := range []time.Duration{-70 * time.Second, 0, 70 * time.Second} {
		for _, a := range []window.Algorithm{window.PerKey, window.TokenBucket, window.SlidingLog} {
			for _, hits := range []bool{false, true} {
				clock := backendtest.NewClock()
				b := memory.New(memory.WithClock(clock.Now), memory.WithAlgorithm(a))
				defer b.Close()
				limit, err := httplimit.New(throttr.NewRateLimit(b), httplimit.Config{
					Limits: []httplimit.Limit{{Name: "x", Limit: 1, Window: time.Minute}}, Legacy: httplimit.LegacySeconds,
					CountRefusals: hits, Clock: func() time.Time { return clock.Now().Add(skew) },
				})
				require.NoError(t, err)
				handler := limit(http.NotFoundHandler())
				for range 2 { // one is served, one is denied
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					require.Equal(t, `"x";r=0;t=60`, w.Header().Get("RateLimit"), "%v, %v", skew, a)
					require.Equal(t, "60", w.Header().Get("X-RateLimit-Reset"), "%v, %v", skew, a)
				}
			}
		}
	}
}
