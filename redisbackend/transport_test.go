package redisbackend_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/internal/testkit"
)

// The defaults are for busy machines. For others:
//
//	go test -v -run LimitsOfAnAPI . -transport.processes 16 -transport.scale 1s -transport.least 0.95 -transport.duration 40s
var (
	apiURL    = flag.String("transport.child", "", "be a process that sends requests to the API at this URL")
	redisURL  = flag.String("transport.redis", "", "of a process: the backend")
	processes = flag.Int("transport.processes", 4, "processes that share a limit")
	apiScale  = flag.Duration("transport.scale", 2*time.Second, "in which the API allows 100 requests")
	margin    = flag.Duration("transport.margin", 200*time.Millisecond, "TransportConfig.Margin")
	least     = flag.Float64("transport.least", 0.4, "how much of the limit must be used")
	sendFor   = flag.Duration("transport.duration", 4*time.Second, "how long processes send")
)

const (
	apiRequests = 100
	apiTokens   = 15_000 // the mean of 100 requests is 10,050
)

// TestMain is a process of TestProcessesKeepToTheLimitsOfAnAPI if the flag says so.
func TestMain(m *testing.M) {
	flag.Parse()
	if *apiURL != "" {
		if err := sendRequests(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// sendRequests sends requests, as many as the limits allow, until stdin ends.
func sendRequests() error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	backend, err := throttr.Open(ctx, *redisURL)
	if err != nil {
		return err
	}
	defer backend.Close()
	transport, err := httplimit.NewTransport(throttr.NewRateLimit(backend, throttr.WithTimeout(10*time.Second)), httplimit.TransportConfig{
		Limits: []throttr.Limit{
			{Name: "requests", Max: apiRequests, Scale: *apiScale},
			{Name: "tokens", Max: apiTokens - 2000, Scale: *apiScale, Burst: 2000, Algorithm: throttr.TokenBucket},
		},
		Cost: func(r *http.Request, l throttr.Limit) uint64 {
			if l.Name == "requests" {
				return 1
			}
			n, _ := strconv.ParseUint(r.Header.Get("Tokens"), 10, 64)
			return n
		},
		Margin: *margin,
		Base:   &http.Transport{MaxIdleConnsPerHost: 16},
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, *apiURL, nil)
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
	for a.tokens += n; now.Sub(a.arrivals[a.first].at) >= *apiScale; a.first++ {
		a.tokens -= a.arrivals[a.first].tokens
	}
	if inScale := len(a.arrivals) - a.first; inScale > apiRequests || a.tokens > apiTokens {
		a.banned = fmt.Sprintf("%d requests and %d tokens in %v", inScale, a.tokens, *apiScale)
	}
}

// run starts processes, and stops them after a time.
func (a *strictAPI) run(t *testing.T, d time.Duration) {
	server, backend := httptest.NewServer(a), testkit.StartRedis(t)
	defer server.Close()
	var all sync.WaitGroup
	for range *processes {
		p := exec.Command(os.Args[0], "-test.run=^$", "-transport.child="+server.URL, "-transport.redis=redis://"+backend.Addr,
			"-transport.scale="+apiScale.String(), "-transport.margin="+margin.String())
		p.Stderr = os.Stderr
		stdin, err := p.StdinPipe()
		noError(t, err)
		noError(t, p.Start())
		all.Go(func() {
			time.Sleep(d)
			stdin.Close()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	expect(t, a.banned == "", "banned: %s", a.banned)
}

// Processes share the limits of an API that bans whoever sends more in any interval.
//
//evidence:redis Processes never send an API more than it allows in any interval
func TestProcessesKeepToTheLimitsOfAnAPI(t *testing.T) {
	a := &strictAPI{}
	a.run(t, *sendFor)
	last := a.arrivals[len(a.arrivals)-1].at
	took := last.Sub(a.arrivals[0].at) + *apiScale // what is sent at once is that of a scale
	used := float64(len(a.arrivals)) / (apiRequests * took.Seconds() / apiScale.Seconds())
	t.Logf("%d requests in %v: %.1f %% of the limit", len(a.arrivals), took.Round(time.Millisecond), 100*used)
	expect(t, used >= *least, "only %.1f %% of the limit were used", 100*used)
}
