// Quickstart counts hits of a user under a limit of 3 a minute, and shows what clients of an HTTP server see under a
// limit.
//
//	go run ./examples/quickstart                                    # in memory
//	go run ./examples/quickstart -store mock                        # on a mock of a Throttr server, in this process
//	go run ./examples/quickstart -store throttr://127.0.0.1:9000    # on a server
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/httplimit"
	"github.com/throttr-go/throttr/mockserver"
)

func main() {
	log.SetFlags(0)
	store := flag.String("store", "memory://", "the `URL` of the store, or mock")
	flag.Parse()
	if err := run(context.Background(), *store, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, store string, out io.Writer) error {
	if store == "mock" {
		srv, err := mockserver.Start()
		if err != nil {
			return err
		}
		defer srv.Close()
		store = "throttr://" + srv.Addr()
	}
	backend, err := throttr.Open(ctx, store)
	if err != nil {
		return err
	}
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)

	for range 4 {
		res, err := limiter.Hit(ctx, "user:42", time.Minute, 3)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "allowed: %v, %d remaining\n", res.Allowed, res.Remaining)
	}

	limit, err := httplimit.New(limiter,
		httplimit.Config{Limits: []throttr.Limit{{Name: "api", Max: 2, Scale: time.Minute}}})
	if err != nil {
		return err
	}
	site := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for range 3 {
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)) // as http.ListenAndServe does
		fmt.Fprintf(out, "%d %s\n", w.Code, http.StatusText(w.Code))
		for _, field := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
			if value := w.Header().Get(field); value != "" {
				fmt.Fprintf(out, "  %s: %s\n", field, value)
			}
		}
	}
	return nil
}
