// Plans shows limits that depend on who asks: nobody in particular, a customer of the free
// plan, of the paid plan, and one who upgrades. It ends by itself.
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

// The plans. Limits of the same name and window are the same count in each.
var (
	anonymous = []httplimit.Limit{burst(1), httplimit.PerHour(2)}
	free      = httplimit.MustPlan(burst(3), httplimit.PerHour(4))
	paid      = httplimit.MustPlan(burst(10), httplimit.PerHour(5000))
	internal  = httplimit.MustPlan() // no limit
)

func burst(n uint64) httplimit.Limit {
	return httplimit.Limit{Name: "burst", Limit: n, Window: 10 * time.Second}
}

// accounts knows customers by their API keys.
type accounts struct {
	mu    sync.Mutex
	names map[string]string          // by API key
	plans map[string]*httplimit.Plan // by name
}

// customer returns who sends a request, "" if nobody is known by its key.
func (a *accounts) customer(r *http.Request) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.names[r.Header.Get("X-API-Key")]
}

// plan returns the limits of who sends a request. A nil Plan means the limits of Config.
func (a *accounts) plan(r *http.Request) *httplimit.Plan {
	name := a.customer(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.plans[name]
}

// key returns whom a request counts for. A key that nobody has checked is not counted by:
// whoever invents one would have a limit of its own for it.
func (a *accounts) key(r *http.Request) string {
	if name := a.customer(r); name != "" {
		return "customer " + name
	}
	return "address " + httplimit.RemoteAddr(r)
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
		Key:    customers.key,
	})
	if err != nil {
		return err
	}
	site := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))

	for _, step := range []struct {
		who, apiKey string
		requests    int
	}{
		{"nobody", "", 2},
		{"nobody, with a key that was invented", "k-0", 1},
		{"fred, free", "k-1", 4},
		{"petra, paid", "k-2", 4},
		{"monitoring, without a limit", "k-3", 4},
	} {
		ask(ctx, out, site, step.who, step.apiKey, step.requests)
	}
	customers.upgrade("fred")
	ask(ctx, out, site, "fred, who has upgraded", "k-1", 2)
	return nil
}

// ask sends requests and prints how they were answered.
func ask(ctx context.Context, out io.Writer, site http.Handler, who, apiKey string, requests int) {
	fmt.Fprintf(out, "%s:\n", who)
	for range requests {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("X-API-Key", apiKey)
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		fmt.Fprintf(out, "  %d  %s\n", w.Code, cmp.Or(w.Header().Get("RateLimit"), "(no limit)"))
	}
}
