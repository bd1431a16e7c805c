// Http is a server that allows each client 5 requests in 10 s and 100 an hour, which it counts in memory.
//
//	go run ./examples/http -addr 127.0.0.1:8080
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/memory"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to serve at")
	flag.Parse()
	log.Fatal(serve(*addr))
}

// serve serves until that fails.
func serve(addr string) error {
	backend := memory.New()
	defer backend.Close()
	handler, err := site(throttr.NewRateLimit(backend))
	if err != nil {
		return err
	}
	srv := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return srv.ListenAndServe()
}

// site returns the handler. Its requests are limited, except for health checks.
func site(limiter *throttr.RateLimit) (http.Handler, error) {
	limit, err := httplimit.New(limiter, httplimit.Config{
		Limits: []throttr.Limit{
			{Name: "burst", Max: 5, Scale: 10 * time.Second},
			httplimit.PerHour(100),
		},
		Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", hello)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return limit(mux), nil
}

// hello responds with the number of requests that the client has left.
func hello(w http.ResponseWriter, r *http.Request) {
	d, _ := httplimit.FromContext(r.Context())
	fmt.Fprintf(w, "Hello, %s! Requests left: %d.\n", d.Strictest.Key, d.Strictest.Remaining)
}
