package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/netip"
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

// Only failed logins count: five a minute from each address.
func ExampleConfig_giveBack() {
	login := must(httplimit.Config{
		Limits:    []throttr.Limit{httplimit.PerMinute(5)},
		OnFailure: httplimit.Refuse,
		GiveBack:  func(_ *http.Request, status int) bool { return status < 400 },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "correct" {
			http.Error(w, "Wrong password.", http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"correct", "correct", "correct", "1", "2", "correct", "3", "4", "5", "6", "correct"} {
		fmt.Print(status(login, "POST", "/login?password="+password, "192.0.2.1"), " ")
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
