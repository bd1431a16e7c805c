package httplimit_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/memory"
)

// What is given back depends on the status, however the handler responds.
func TestAResponseDecidesWhatIsGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		respond func(w http.ResponseWriter, r *http.Request)
		status  int
	}{
		"nothing":          {func(w http.ResponseWriter, _ *http.Request) {}, 200},
		"a body":           {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x") }, 200},
		"a status":         {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, 304},
		"the first of two": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(500) }, 404},
		"a hint before":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(401) }, 401},
		"flushed":          {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, 200},
		"flushed by control": {func(w http.ResponseWriter, _ *http.Request) {
			http.NewResponseController(w).Flush()
			w.WriteHeader(500)
		}, 200},
		"no such status": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }, 500},
		"a panic in a body": {func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		}, 200},
		"a panic":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500},
		"a panic after 200": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic(http.ErrAbortHandler) }, 200},
		"hijacked": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				conn.Close()
			}
		}, 101},
	} {
		t.Run(name, func(t *testing.T) {
			statuses := make(chan int, 1)
			site := newSite(t, httplimit.Config{}, nil)
			limited := site.wrap(t, httplimit.Config{
				GiveBack: func(_ *http.Request, status int) bool { statuses <- status; return test.status != 200 },
			}, test.respond)
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(unwrapped{w}, r)
			}))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.Start()
			defer s.Close()
			if res, err := s.Client().Get(s.URL); err == nil {
				io.Copy(io.Discard, res.Body) // a client that leaves early is not asked about
				res.Body.Close()
			}
			require.Equal(t, test.status, <-statuses)
			require.Eventually(t, func() bool {
				return (site.counts(t, httplimit.Request{Addr: "127.0.0.1"})[0] == 1) == (test.status == 200)
			}, 10*time.Second, time.Millisecond)
		})
	}
}

// unwrapped is a ResponseWriter of another middleware, which has no methods of its own: http.ResponseController finds
// what is behind it.
type unwrapped struct{ http.ResponseWriter }

func (w unwrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// What the server's ResponseWriter has not, the handler's does not do, and it says so. What is denied has nothing to be
// given back.
func TestAResponseWriterWithoutMethodsIsNoFlusher(t *testing.T) {
	var statuses []int
	limit := must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, GiveBack: func(_ *http.Request, status int) bool {
		statuses = append(statuses, status)
		return false
	}})
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.ErrorIs(t, http.NewResponseController(w).Flush(), http.ErrNotSupported)
		w.WriteHeader(http.StatusTeapot)
	}))
	for range 2 {
		bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
		h.ServeHTTP(bare, httptest.NewRequest(http.MethodGet, "/", nil))
	}
	require.Equal(t, []int{http.StatusTeapot}, statuses)
}

// A client that leaves can't choose that its request counts nothing. The deadline of a TimeoutHandler is not the
// client's.
func TestARequestWhoseClientHasLeftStaysCounted(t *testing.T) {
	for late, want := range map[bool]uint64{false: 1, true: 0} {
		synctest.Test(t, func(t *testing.T) { // so that what is given back in the background is there
			ctx, leave := context.WithTimeout(t.Context(), time.Minute)
			s := newSite(t, httplimit.Config{}, nil)
			cfg := httplimit.Config{GiveBack: func(_ *http.Request, status int) bool { return status == 502 }}
			h := s.wrap(t, cfg, func(w http.ResponseWriter, _ *http.Request) {
				if late {
					time.Sleep(2 * time.Minute)
				}
				leave()
				w.WriteHeader(502)
			})
			serve(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			require.Equal(t, []uint64{want}, s.counts(t, httplimit.Request{Addr: "192.0.2.1"}))
		})
	}
}

// A handler gets all of the request, and what it does with the context and the header fields is its own. The context of
// other middleware need not be comparable.
func TestAGrantedRequestIsACopy(t *testing.T) {
	type key struct{}
	ctx := incomparable{context.WithValue(t.Context(), key{}, "value"), nil}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.SetPathValue("id", "42")
	s := newSite(t, httplimit.Config{}, nil)
	h := s.wrap(t, httplimit.Config{}, func(w http.ResponseWriter, got *http.Request) {
		require.NotSame(t, r, got)
		require.Equal(t, "42", got.PathValue("id"))
		require.Equal(t, "value", got.Context().Value(key{}))
		d, ok := httplimit.FromContext(got.Context())
		require.True(t, ok)
		require.EqualValues(t, 2, d.Strictest.Remaining)
		_, ok = httplimit.FromContext(r.Context())
		require.False(t, ok)
		w.WriteHeader(http.StatusAccepted)
	})
	require.Equal(t, http.StatusAccepted, serve(h, r).StatusCode)
	exempt := func(*http.Request) (*httplimit.Plan, error) { return new(httplimit.Plan), nil }
	require.Equal(t, http.StatusAccepted, serve(newSite(t, httplimit.Config{Plan: exempt}, nil), r).StatusCode, "no limit")
}

type incomparable struct {
	context.Context
	values []any
}

// Requests allocate little: the copy of the request, what is known of it, its reservation, and the header fields.
func TestRequestsAllocateLittle(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const many = 1_000_000
	limits := []throttr.Limit{httplimit.PerSecond(many), httplimit.PerMinute(many), httplimit.PerHour(many), httplimit.PerDay(many)}
	for _, c := range []struct {
		limits []throttr.Limit
		most   float64
	}{{limits[2:3], 7}, {limits, 18}} {
		h := must(httplimit.Config{Limits: c.limits})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		w := httptest.NewRecorder()
		n := testing.AllocsPerRun(1000, func() {
			clear(w.Header())
			h.ServeHTTP(w, r)
		})
		require.LessOrEqual(t, n, c.most, "%d limits", len(c.limits))
	}
}

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
