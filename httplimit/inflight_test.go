package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

// A handler that does not notice that its client has gone still works: it holds its place until it returns, or panics.
func TestAHandlerThatGoesOnHoldsItsPlace(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			places := inflight.New(memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0)))
			defer places.Close()
			stream := inflight.Limit{Name: "streams", Max: 1, Lease: time.Second}
			limit := must(httplimit.Config{InFlight: stream, Places: places, Legacy: httplimit.LegacyUnix})
			hour := must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(9)}, Legacy: httplimit.LegacyUnix})
			ctx, leave := context.WithCancel(t.Context())
			server := httptest.NewRecorder()
			var h http.Handler
			h = hour(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				require.Same(t, server, w, "and so a hijacked connection is the server's, with all of its methods")
				another := get(h, "192.0.2.1:1234")
				require.Equal(t, http.StatusTooManyRequests, another.StatusCode)
				require.Empty(t, another.Header.Get("X-RateLimit-Reset"), "no window ends, also if one of middleware outside does")
				leave()
				time.Sleep(time.Minute)
				require.EqualValues(t, 1, places.Stats().InUse)
				if panics {
					panic(http.ErrAbortHandler)
				}
			})))
			func() {
				defer func() { require.Equal(t, panics, recover() != nil) }()
				h.ServeHTTP(server, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			}()
			require.Zero(t, places.Stats().InUse)
		})
	}
}
