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
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/lockout"
	"github.com/throttr-go/throttr/memory"
)

// check ends an example if there is an error: a program would return it.
func check[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// must returns the middleware of a Config, over memory.
func must(cfg httplimit.Config) func(http.Handler) http.Handler {
	return check(httplimit.New(throttr.NewRateLimit(memory.New()), cfg))
}

// status sends a request, and returns the status of the response.
func status(h http.Handler, method, path, from string, header ...string) int {
	return send(h, method, path, from+":4711", header...).StatusCode
}

// An address, a tenant and all together, in one decision. What one of them denies counts in none.
func ExampleConfig_keyOf() {
	site := must(httplimit.Config{
		Limits: []throttr.Limit{
			{Name: "address", Max: 3, Scale: time.Minute},
			{Name: "tenant", Max: 2, Scale: time.Minute},
			{Name: "all", Max: 1000, Scale: time.Second},
		},
		KeyOf: map[string]httplimit.KeyFunc{
			"tenant": func(r *http.Request) string { return r.Header.Get("Tenant") }, // really: the authenticated one
			"all":    httplimit.Everyone,
		},
	})(http.HandlerFunc(hello))
	for _, tenant := range []string{"a", "a", "a", "a", "b", "b"} {
		fmt.Print(tenant, status(site, "GET", "/", "192.0.2.1", "Tenant", tenant), " ")
	}
	// Output: a200 a200 a429 a429 b200 b429
}

// Plans with limits of several keys: each repeats the limits that hold for all, and each name is in KeyOf.
func ExampleMiddleware_Check() {
	address := throttr.Limit{Name: "address", Max: 100, Scale: time.Minute}
	all := throttr.Limit{Name: "all", Max: 5000, Scale: time.Second}
	plan := func(name string, perHour uint64) *httplimit.Plan {
		return httplimit.MustPlan(throttr.Limit{Name: name, Max: perHour, Scale: time.Hour}, address, all)
	}
	plans := map[string]*httplimit.Plan{"free": plan("account", 1), "pro": plan("account", 3), "new": plan("acount", 5)}
	limit := check(httplimit.NewMiddleware(throttr.NewRateLimit(memory.New()), httplimit.Config{
		Limits: []throttr.Limit{address, all}, // of requests without a plan, or whose plan is not known
		Plan:   func(r *http.Request) (*httplimit.Plan, error) { return plans[r.Header.Get("Tier")], nil },
		KeyOf: map[string]httplimit.KeyFunc{
			"address": httplimit.RemoteAddr,                                            // behind a proxy, what ByAddr returns
			"account": func(r *http.Request) string { return r.Header.Get("Account") }, // really: the authenticated one
			"all":     httplimit.Everyone,
		},
	}))
	fmt.Println(limit.Check(plans["free"]), limit.Check(plans["pro"]))
	fmt.Println(limit.Check(plans["new"]))
	site := limit.Wrap(http.HandlerFunc(hello))
	for _, tier := range []string{"free", "free", "pro", "pro", "pro", "", "new"} { // they share the count of the account
		fmt.Print(status(site, "GET", "/", "192.0.2.1", "Account", "ann", "Tier", tier), " ")
	}
	// Output:
	// <nil> <nil>
	// throttr: invalid configuration: limit "acount" has no key of its own, as others have
	// 200 429 200 200 429 200 500
}

// Only failed logins count: five a minute from each address. The others are given back in the background.
func ExampleConfig_giveBack() {
	given := make(chan bool, 1)
	limiter := throttr.NewRateLimit(memory.New(), throttr.WithObserver(func(_ context.Context, e throttr.Event) {
		if e.Kind == throttr.EventSettled {
			given <- true
		}
	}))
	login := check(httplimit.New(limiter, httplimit.Config{
		Limits:    []throttr.Limit{httplimit.PerMinute(5)},
		OnFailure: httplimit.Refuse,
		GiveBack:  func(_ *http.Request, status int) bool { return status < 400 },
	}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "correct" {
			http.Error(w, "Wrong password.", http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"correct", "correct", "correct", "1", "2", "correct", "3", "4", "5", "6", "correct"} {
		code := status(login, "POST", "/login?password="+password, "192.0.2.1")
		if code == http.StatusOK {
			<-given
		}
		fmt.Print(code, " ")
	}
	// Output: 200 200 200 401 401 200 401 401 401 429 429
}

// What a request costs is known when it has been served.
func ExampleDecision_Commit() {
	limit := check(httplimit.NewMiddleware(throttr.NewRateLimit(memory.New()), httplimit.Config{
		Limits: []throttr.Limit{{Name: "bytes", Max: 1000, Scale: time.Minute}},
		Cost:   func(*http.Request, throttr.Limit) uint64 { return 400 }, // an estimate
	}))
	site := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := w.Write([]byte("an answer"))
		if d, ok := httplimit.FromContext(r.Context()); ok {
			d.Commit(r.Context(), "bytes", uint64(n))
		}
	}))
	status(site, "GET", "/", "192.0.2.1")
	outcomes, err := limit.Peek(context.Background(), httplimit.Request{Addr: "192.0.2.1"})
	fmt.Println(outcomes[0].Count, err)
	// Output: 9 <nil>
}

// Health checks and preflights are not counted. Anybody can send what looks like a preflight, so the handler must not act
// on it. Scripts of other origins may read the fields.
func Example_preflights() {
	preflight := func(r *http.Request) bool {
		return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
	}
	site := must(httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerHour(1)},
		Skip:   func(r *http.Request) bool { return r.URL.Path == "/healthz" || preflight(r) },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Expose-Headers", "RateLimit, RateLimit-Policy, Retry-After")
		if preflight(r) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		hello(w, r)
	}))
	origin := []string{"Origin", "https://example.com", "Access-Control-Request-Method", "POST"}
	fmt.Println(status(site, "GET", "/healthz", "192.0.2.1"), status(site, "OPTIONS", "/", "192.0.2.1", origin...))
	fmt.Println(status(site, "OPTIONS", "/", "192.0.2.1"), status(site, "OPTIONS", "/", "192.0.2.1")) // no preflights
	// Output:
	// 200 204
	// 200 429
}

// A network of one's own is let through, and one that attacks gets a 403 before anything is counted.
func ExampleInNetworks() {
	addr := httplimit.AddrConfig{Header: "X-Forwarded-For", Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	ours := check(httplimit.InNetworks(addr, netip.MustParsePrefix("198.51.100.0/24")))
	blocked := check(httplimit.InNetworks(addr, netip.MustParsePrefix("203.0.113.0/24")))
	limited := must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerHour(1)}, Addr: addr, Skip: ours})(http.HandlerFunc(hello))
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if blocked(r) {
			http.Error(w, "Forbidden.", http.StatusForbidden)
			return
		}
		limited.ServeHTTP(w, r)
	})
	for _, client := range []string{"198.51.100.7", "203.0.113.7", "192.0.2.7"} {
		for range 2 {
			fmt.Print(status(site, "GET", "/", "10.0.0.1", "X-Forwarded-For", client), " ")
		}
	}
	// Output: 200 200 403 403 200 429
}

// Limits come from a file, which is read again without a restart. The counts stay.
func Example_reload() {
	var current atomic.Pointer[httplimit.Plan]
	load := func(perHour uint64) error { // really: what the file says
		plan, err := httplimit.NewPlan(httplimit.PerHour(perHour))
		if err == nil {
			current.Store(plan) // and with an error, the last one stays
		}
		return err
	}
	fmt.Println(load(1))
	site := must(httplimit.Config{
		Plan: func(*http.Request) (*httplimit.Plan, error) { return current.Load(), nil },
	})(http.HandlerFunc(hello))
	fmt.Println(status(site, "GET", "/", "192.0.2.1"), status(site, "GET", "/", "192.0.2.1"))
	fmt.Println(load(1e18) != nil, load(3))
	fmt.Println(status(site, "GET", "/", "192.0.2.1"), status(site, "GET", "/", "192.0.2.1"), status(site, "GET", "/", "192.0.2.1"))
	// Output:
	// <nil>
	// 200 429
	// true <nil>
	// 200 200 429
}

// Streams of events, and web sockets: how many a client has open, and how many it opens.
func Example_streams() {
	backend := memory.New()
	places := inflight.New(backend)
	defer places.Close()
	limit := check(httplimit.New(throttr.NewRateLimit(backend), httplimit.Config{
		Limits:   []throttr.Limit{httplimit.PerMinute(30)},
		InFlight: inflight.Limit{Name: "streams", Max: 1},
		Places:   places,
	}))
	opened, closing := make(chan bool), make(chan bool)
	site := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		opened <- true
		<-closing // events, until r.Context() ends
	}))
	first := make(chan int)
	go func() { first <- status(site, "GET", "/events", "192.0.2.1") }()
	<-opened
	fmt.Println(status(site, "GET", "/events", "192.0.2.1"))
	close(closing)
	fmt.Println(<-first)
	// Output:
	// 429
	// 200
}

// A route has limits of its own: middleware around its handler.
func Example_routes() {
	mux := http.NewServeMux()
	mux.Handle("/", must(httplimit.Config{Limits: []throttr.Limit{httplimit.PerMinute(100)}})(http.HandlerFunc(hello)))
	mux.Handle("/search", must(httplimit.Config{Limits: []throttr.Limit{{Name: "search", Max: 1, Scale: time.Minute}}})(http.HandlerFunc(hello)))
	fmt.Println(status(mux, "GET", "/search", "192.0.2.1"), status(mux, "GET", "/search", "192.0.2.1"), status(mux, "GET", "/", "192.0.2.1"))
	// Output: 200 429 200
}

// Who is denied three times is banned for an hour.
func Example_ban() {
	limiter := throttr.NewRateLimit(memory.New())
	bans := check(lockout.New(limiter, lockout.Config{
		Failures: throttr.Limit{Name: "denials", Max: 3, Scale: 10 * time.Minute},
		Locks:    []time.Duration{time.Hour},
	}))
	limit := check(httplimit.New(limiter, httplimit.Config{
		Limits: []throttr.Limit{httplimit.PerMinute(1)},
		OnDenied: func(w http.ResponseWriter, r *http.Request, d httplimit.Decision, next http.Handler) {
			if d.Verdict() == admission.Deny { // and not a policy, while the store is away
				if err := bans.Fail(r.Context(), httplimit.RemoteAddr(r)); err != nil {
					log.Print(err)
				}
			}
			httplimit.Deny(w, r, d, next)
		},
	}))
	limited := limit(http.HandlerFunc(hello))
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if banned, err := bans.Locked(r.Context(), httplimit.RemoteAddr(r)); err == nil && banned > 0 {
			http.Error(w, "Banned.", http.StatusForbidden)
			return
		}
		limited.ServeHTTP(w, r)
	})
	for range 6 {
		fmt.Print(status(site, "GET", "/", "192.0.2.1"), " ")
	}
	// Output: 200 429 429 429 403 403
}

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
