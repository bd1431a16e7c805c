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

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// streams is one stream at a time of a client.
var streams = inflight.Limit{Name: "streams", Max: 1, Lease: 4 * time.Second}

// Two HTTP servers share a limit of one stream. No place is left over, whatever ends the stream.
//
//evidence:http No place is left over by a browser that leaves, a handler that panics, a server that is closed
func TestStreamsOfTwoServersLeaveNoPlace(t *testing.T) {
	s := testkit.StartRedis(t)
	var backends [2]window.Backend
	for i := range backends {
		backends[i] = redisbackend.New(connectTo(t, rueidis.ClientOption{InitAddress: []string{s.Addr}, ConnWriteTimeout: patience}))
	}
	var places [2]*inflight.Limiter
	var sites [2]*httptest.Server
	for i, b := range backends {
		places[i] = inflight.New(b, inflight.WithLogger(nil), inflight.WithTimeout(10*time.Second)) // a busy machine
		t.Cleanup(func() { places[i].Close() })
		sites[i] = streamSite(t, places[i])
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := places[0].Acquire(ctx, "ready", streams, 1) // the store has just been made
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	for _, test := range []struct {
		name, path string
		holds      time.Duration
		end        func(leave context.CancelFunc) error
	}{
		{"the browser leaves", "/", streams.Lease * 5 / 4, func(leave context.CancelFunc) error { leave(); return nil }},
		{"a panic", "/panic", 0, func(context.CancelFunc) error { return nil }},
		{"the server is closed", "/", 0, func(context.CancelFunc) error { return sites[0].Config.Close() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			body := getStream(t, ctx, sites[0], test.path, http.StatusOK)
			if _, err := body.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if test.path == "/" {
				time.Sleep(test.holds) // it is renewed
				getStream(t, t.Context(), sites[1], "/", http.StatusTooManyRequests)
			}
			if err := test.end(leave); err != nil {
				t.Fatal(err)
			}
			await(t, "places are left over", func() bool {
				s, err := places[1].Peek(t.Context(), "client:kk", streams)
				if err != nil {
					t.Fatal(err)
				}
				return s.InUse == 0
			})
		})
	}
}

// streamSite starts a server of streams that end with their requests, or panic. It ends with the test.
func streamSite(t *testing.T, places *inflight.Limiter) *httptest.Server {
	t.Helper()
	limit, err := httplimit.New(throttr.NewRateLimit(memory.New()), httplimit.Config{
		InFlight: streams, Places: places, Key: func(*http.Request) string { return "k" }, PlainKeys: true,
	})
	if err != nil {
		t.Fatal(err)
	}
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
func getStream(t *testing.T, ctx context.Context, site *httptest.Server, path string, status int) *bufio.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, site.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != status {
		t.Fatalf("status %d, want %d", res.StatusCode, status)
	}
	return bufio.NewReader(res.Body)
}
