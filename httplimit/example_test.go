package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// get sends a request from an address to a handler and returns the response.
func get(h http.Handler, from string, header ...string) *http.Response {
	return send(h, http.MethodGet, "/", from, header...)
}

// send sends a request of any method and path.
func send(h http.Handler, method, path, from string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = from
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return serve(h, r)
}

// serve returns the response of a handler to a request.
func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func ExampleNew() {
	limiter := throttr.NewRateLimit(memory.New())
	limit, err := httplimit.New(limiter, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerMinute(2), httplimit.PerHour(100)},
	})
	if err != nil {
		log.Fatal(err)
	}
	site := limit(http.HandlerFunc(hello))
	for range 3 {
		res := get(site, "192.0.2.1:4711")
		fmt.Println(res.Status)
		for _, field := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
			for _, value := range res.Header.Values(field) {
				fmt.Printf("  %s: %s\n", field, value)
			}
		}
	}
	// Output:
	// 200 OK
	//   RateLimit-Policy: "minute";q=2;w=60, "hour";q=100;w=3600
	//   RateLimit: "minute";r=1;t=60, "hour";r=99;t=3600
	// 200 OK
	//   RateLimit-Policy: "minute";q=2;w=60, "hour";q=100;w=3600
	//   RateLimit: "minute";r=0;t=60, "hour";r=98;t=3600
	// 429 Too Many Requests
	//   RateLimit-Policy: "minute";q=2;w=60, "hour";q=100;w=3600
	//   RateLimit: "minute";r=0;t=60, "hour";r=98;t=3600
	//   Retry-After: 60
}

func ExampleByAddr() {
	key := check(httplimit.ByAddr(httplimit.AddrConfig{
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Header:  "X-Forwarded-For",
	}))
	request := func(from, forwardedFor string) *http.Request {
		return &http.Request{RemoteAddr: from, Header: http.Header{"X-Forwarded-For": {forwardedFor}}}
	}
	fmt.Println(key(request("10.0.0.1:80", "192.0.2.1")))
	fmt.Println(key(request("10.0.0.1:80", "whatever the client sent, 192.0.2.1, 10.0.0.2")))
	fmt.Println(key(request("10.0.0.1:80", "2001:db8:1:2:3:4:5:6")))
	fmt.Println(key(request("192.0.2.9:80", "whatever the client sent")))
	// Output:
	// 192.0.2.1
	// 192.0.2.1
	// 2001:db8:1:2::/64
	// 192.0.2.9
}

func ExampleFromContext() {
	limit := must(httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerHour(100)},
	})
	get(limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, ok := httplimit.FromContext(r.Context()); ok {
			fmt.Printf("%s has %d requests left this %s\n", d.Strictest.Key, d.Strictest.Remaining, d.Strictest.Name)
		}
	})), "192.0.2.1:4711")
	// Output: 192.0.2.1 has 99 requests left this hour
}

func ExampleNewPlan() {
	pro := check(httplimit.NewPlan(httplimit.PerHour(1000), throttr.Limit{Name: "burst", Max: 50, Scale: 10 * time.Second}))
	for _, l := range pro.Limits() {
		fmt.Println(l)
	}
	_, err := httplimit.NewPlan(httplimit.PerHour(10), httplimit.PerHour(20))
	fmt.Println(err)
	// Output:
	// burst: 50 in 10s
	// hour: 1000 in 1h0m0s
	// throttr: invalid configuration: two limits are named "hour"
}

// A client of somebody else's API: a language model allows 60 requests and 10,000 tokens a minute, for all processes that
// share the backend. What an answer will cost is known when it is there.
func ExampleTransport() {
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Tokens-Used", "120")
		fmt.Fprintln(w, "An answer.")
	}))
	defer model.Close()
	backend := memory.New() // or one on Redis, if there are several processes
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithObserver(func(_ context.Context, e throttr.Event) {
		if e.Kind == throttr.EventSettled && e.Limit.Name == "tokens" {
			fmt.Println("reserved", e.Reserved, "and used", e.N)
		}
	}))
	transport := check(httplimit.NewTransport(limiter, httplimit.TransportConfig{
		Limits: []throttr.Limit{
			{Name: "requests", Max: 60, Scale: time.Minute},
			{Name: "tokens", Max: 9000, Scale: time.Minute, Burst: 1000, Algorithm: throttr.TokenBucket},
		},
		Cost: func(_ *http.Request, l throttr.Limit) uint64 {
			if l.Name == "tokens" {
				return 400 // an estimate, or the max_tokens of the request
			}
			return 1
		},
		Actual: func(res *http.Response, l throttr.Limit, cost uint64) uint64 {
			if l.Name == "tokens" {
				cost, _ = strconv.ParseUint(res.Header.Get("Tokens-Used"), 10, 64)
			}
			return cost
		},
	}))
	res, err := (&http.Client{Transport: transport}).Get(model.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	io.Copy(os.Stdout, res.Body)
	// Output:
	// reserved 400 and used 120
	// An answer.
}
