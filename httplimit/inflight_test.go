package httplimit_test

import (
	"context"
	"io"
	"log"
	"net"
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

// oneAtATime returns middleware that lets each client have one request in flight, and the places.
func oneAtATime(t *testing.T) (func(http.Handler) http.Handler, *inflight.Limiter) {
	store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	places := inflight.New(store)
	t.Cleanup(func() { places.Close() })
	stream := inflight.Limit{Name: "streams", Max: 1, Lease: time.Second}
	limit, err := httplimit.New(throttr.NewRateLimit(store), httplimit.Config{InFlight: stream, Places: places})
	require.NoError(t, err)
	return limit, places
}

// A handler that does not notice that its client has gone still works: it holds its place until it returns, or panics.
func TestAHandlerThatGoesOnHoldsItsPlace(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			limit, places := oneAtATime(t)
			ctx, leave := context.WithCancel(t.Context())
			h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				leave()
				time.Sleep(time.Minute)
				require.EqualValues(t, 1, places.Stats().InUse)
				if panics {
					panic(http.ErrAbortHandler)
				}
			}))
			func() {
				defer func() { require.Equal(t, panics, recover() != nil) }()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			}()
			require.Zero(t, places.Stats().InUse)
		})
	}
}

// unwrapped is a ResponseWriter of another middleware, which has no methods of its own: http.ResponseController finds
// what is behind it.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// The handlers of web sockets may return and leave the connection to goroutines.
func TestAHijackedConnectionHoldsThePlaceUntilItIsClosed(t *testing.T) {
	for name, test := range map[string]struct{ panics, wrapped, offers bool }{
		"returns":               {offers: true},
		"panics":                {panics: true, offers: true},
		"without an offer":      {}, // clients can't choose that they hold no place
		"behind another writer": {wrapped: true},
	} {
		t.Run(name, func(t *testing.T) {
			limit, places := oneAtATime(t)
			conns, returned := make(chan net.Conn, 1), make(chan bool)
			limited := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				rw.Flush()
				conns <- conn
				if test.panics {
					panic(http.ErrAbortHandler)
				}
			}))
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(returned)
				if test.wrapped {
					w = unwrapped{w}
				}
				limited.ServeHTTP(w, r)
			}))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.Start()
			defer s.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
			require.NoError(t, err)
			if test.offers {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}
			res, err := s.Client().Do(r)
			require.NoError(t, err)
			defer res.Body.Close()
			require.Equal(t, 101, res.StatusCode)
			<-returned
			conn := <-conns
			defer conn.Close()
			require.Equal(t, test.panics, places.Stats().InUse == 0)
			require.NoError(t, conn.Close())
			require.Zero(t, places.Stats().InUse)
		})
	}
}
