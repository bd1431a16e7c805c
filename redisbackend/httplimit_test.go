package redisbackend_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/redisbackend"
)

// streams is one stream at a time of a client.
var streams = inflight.Limit{Name: "streams", Max: 1, Lease: 2 * time.Second}

// Two HTTP servers share a limit of one stream. No place is left over, whatever ends the stream.
func TestStreamsOfTwoServersLeaveNoPlace(t *testing.T) {
	s := testkit.StartRedis(t)
	var places [2]*inflight.Limiter
	var sites [2]*httptest.Server
	for i := range places {
		places[i] = newInFlight(t, redisbackend.New(connect(t, s)))
		sites[i] = streamSite(t, places[i])
	}
	for _, test := range []struct {
		name, path string
		holds      time.Duration
		end        func(leave context.CancelFunc)
	}{
		{"the browser leaves", "/", streams.Lease * 5 / 4, func(leave context.CancelFunc) { leave() }},
		{"a panic", "/panic", 0, func(context.CancelFunc) {}},
		{"the server is closed", "/", 0, func(context.CancelFunc) { noError(t, sites[0].Config.Close()) }},
	} {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		body := getStream(ctx, t, sites[0], test.path, http.StatusOK)
		_, err := body.ReadString('\n')
		noError(t, err)
		if test.path == "/" {
			time.Sleep(test.holds) // it is renewed
			getStream(t.Context(), t, sites[1], "/", http.StatusTooManyRequests)
		}
		test.end(leave)
		await(t, test.name+", and places are left over", func() bool {
			s, err := places[1].Peek(t.Context(), "client:kk", streams)
			noError(t, err)
			return s.InUse == 0
		})
	}
}

// streamSite starts a server of streams that end with their requests, or panic. It ends with the test.
func streamSite(t *testing.T, places *inflight.Limiter) *httptest.Server {
	t.Helper()
	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), httplimit.Config{
		InFlight: streams, Places: places, Key: func(*http.Request) string { return "k" }, PlainKeys: true,
	})
	noError(t, err)
	site := httptest.NewUnstartedServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: event\n\n")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	})))
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.Start()
	t.Cleanup(site.Close)
	return site
}

// getStream sends a request, and requires a status. It returns the body.
func getStream(ctx context.Context, t *testing.T, site *httptest.Server, path string, status int) *bufio.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, site.URL+path, nil)
	noError(t, err)
	res, err := http.DefaultClient.Do(r)
	noError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	expect(t, res.StatusCode == status, "status %d, want %d", res.StatusCode, status)
	return bufio.NewReader(res.Body)
}
