// Plans shows limits that depend on the client: an anonymous client, customers with a free and a
// paid plan, and a customer who upgrades. The program sends itself requests, prints the responses,
// and exits.
//
//	go run ./examples/plans
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

// The plans. Limits of the same name, scale and algorithm share their counts.
var (
	anonymous = []throttr.Limit{burst(1), httplimit.PerHour(2)}
	free      = httplimit.MustPlan(burst(3), httplimit.PerHour(4))
	paid      = httplimit.MustPlan(burst(10), httplimit.PerHour(5000))
	internal  = httplimit.MustPlan() // no limits
)

func burst(n uint64) throttr.Limit {
	return throttr.Limit{Name: "burst", Max: n, Scale: 10 * time.Second}
}

// accounts maps API keys to customers and their plans.
type accounts struct {
	mu    sync.Mutex                 // guards what follows
	names map[string]string          // by API key
	plans map[string]*httplimit.Plan // by name
}

// customer returns the name of the customer who sent a request, or "" if its API key is unknown: a client that invents
// API keys would have a limit of its own for each.
func (a *accounts) customer(r *http.Request) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.names[r.Header.Get("X-API-Key")]
}

// plan returns the plan of the customer who sent a request. Nil means the limits of Config.
func (a *accounts) plan(r *http.Request) (*httplimit.Plan, error) {
	name := a.customer(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plans[name], nil
}

func (a *accounts) upgrade(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plans[name] = paid
}

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	customers := &accounts{
		names: map[string]string{"k-1": "fred", "k-2": "petra", "k-3": "monitoring"},
		plans: map[string]*httplimit.Plan{"fred": free, "petra": paid, "monitoring": internal},
	}
	backend := memory.New()
	defer backend.Close()
	limit, err := httplimit.New(throttr.NewRateLimit(backend), httplimit.Config{
		Limits: anonymous,
		Plan:   customers.plan,
		Key:    customers.customer, // others count by their addresses
	})
	if err != nil {
		return err
	}
	site := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))

	for _, step := range []struct {
		client, apiKey string
		requests       int
	}{
		{"anonymous", "", 2},
		{"anonymous, with an invented API key", "k-0", 1},
		{"fred, free plan", "k-1", 4},
		{"petra, paid plan", "k-2", 4},
		{"monitoring, no limits", "k-3", 4},
	} {
		send(ctx, out, site, step.client, step.apiKey, step.requests)
	}
	customers.upgrade("fred")
	send(ctx, out, site, "fred, after the upgrade", "k-1", 2)
	return nil
}

// send sends requests and prints the responses.
func send(ctx context.Context, out io.Writer, site http.Handler, client, apiKey string, requests int) {
	fmt.Fprintf(out, "%s:\n", client)
	for range requests {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("X-API-Key", apiKey)
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		fmt.Fprintf(out, "  %d  %s\n", w.Code, cmp.Or(w.Header().Get("RateLimit"), "(no limit)"))
	}
}
