//go:build unix

package redisbackend_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
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

// The API allows so much in its scale.
const (
	apiRequests = 100
	apiTokens   = 15_000 // the mean of 100 requests is 10,050
)

// apiOrders are what a process that sends requests to an API does.
type apiOrders struct {
	API, Redis string // URLs
	Scale      time.Duration
}

// sendRequests is a process that sends requests, as many as the limits allow, until stdin ends.
func sendRequests(args []byte) error {
	var o apiOrders
	if err := json.Unmarshal(args, &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	backend, err := throttr.Open(ctx, o.Redis)
	if err != nil {
		return err
	}
	defer backend.Close()
	transport, err := httplimit.NewTransport(throttr.NewRateLimit(backend, throttr.WithTimeout(10*time.Second)), httplimit.TransportConfig{
		Limits: []throttr.Limit{
			{Name: "requests", Max: apiRequests, Scale: o.Scale},
			{Name: "tokens", Max: apiTokens - 2000, Scale: o.Scale, Burst: 2000, Algorithm: throttr.TokenBucket},
		},
		Cost: func(r *http.Request, l throttr.Limit) uint64 {
			if l.Name == "requests" {
				return 1
			}
			n, _ := strconv.ParseUint(r.Header.Get("Tokens"), 10, 64)
			return n
		},
		Margin: 200 * time.Millisecond,
		Base:   &http.Transport{MaxIdleConnsPerHost: 16},
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, o.API, nil)
				r.Header.Set("Tokens", strconv.Itoa(1+rand.IntN(200)))
				if res, err := transport.RoundTrip(r); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				} else if ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// strictAPI bans for more than it allows in any interval.
type strictAPI struct {
	scale time.Duration

	mu       sync.Mutex // guards what follows
	arrivals []request
	first    int // the first one of the last scale
	tokens   int // of these
	banned   string
}

type request struct {
	at     time.Time
	tokens int
}

func (a *strictAPI) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, _ := strconv.Atoi(r.Header.Get("Tokens"))
	now := time.Now()
	a.arrivals = append(a.arrivals, request{now, n})
	for a.tokens += n; now.Sub(a.arrivals[a.first].at) >= a.scale; a.first++ {
		a.tokens -= a.arrivals[a.first].tokens
	}
	if inScale := len(a.arrivals) - a.first; inScale > apiRequests || a.tokens > apiTokens {
		a.banned = fmt.Sprintf("%d requests and %d tokens in %v", inScale, a.tokens, a.scale)
	}
}

// Processes share the limits of an API that bans whoever sends more in any interval.
func TestProcessesKeepToTheLimitsOfAnAPI(t *testing.T) {
	api := &strictAPI{scale: 2 * time.Second}
	processes, lasts, least := 4, 4*time.Second, 0.4 // the least that must be used, also on a busy machine
	if testkit.Thorough() {
		api.scale = time.Second
		processes, lasts, least = 16, 20*time.Second, 0.7
	}
	server, backend := httptest.NewServer(api), testkit.StartRedis(t)
	var all sync.WaitGroup
	for range processes {
		p := process(t, "sends requests", apiOrders{server.URL, "redis://" + backend.Addr, api.scale})
		stdin, err := p.StdinPipe()
		noError(t, err)
		noError(t, p.Start())
		all.Go(func() {
			time.Sleep(lasts)
			stdin.Close()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	server.Close() // no request arrives any more
	expect(t, api.banned == "", "banned: %s", api.banned)
	last := api.arrivals[len(api.arrivals)-1].at
	took := last.Sub(api.arrivals[0].at) + api.scale // what is sent at once is that of a scale
	used := float64(len(api.arrivals)) / (apiRequests * took.Seconds() / api.scale.Seconds())
	t.Logf("%d requests in %v: %.1f %% of the limit", len(api.arrivals), took.Round(time.Millisecond), 100*used)
	expect(t, used >= least, "only %.1f %% of the limit were used", 100*used)
}
