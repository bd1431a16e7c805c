package throttr_test

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

// hangUp makes srv close every connection on which it gets a QUERY.
func hangUp(srv *mockserver.Server) {
	srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true})
}

func ExampleWithPolicy() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	hangUp(srv)

	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		limiter := throttr.NewRateLimit(client.Backend(), throttr.WithPolicy(p))
		res, err := limiter.Hit(ctx, "user:42", time.Hour, 100)
		fmt.Printf("%v: allowed %v, degraded %v, error %v\n", p, res.Allowed, res.Degraded, err != nil)
	}
	// Output:
	// leave it to the caller: allowed false, degraded false, error true
	// allow hits: allowed true, degraded true, error false
	// deny hits: allowed false, degraded true, error false
}

func ExampleWithFallback() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	hangUp(srv)

	fallback := memory.New()
	defer fallback.Close()
	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithFallback(fallback))
	for range 2 {
		res, err := limiter.Hit(ctx, "user:42", time.Hour, 1)
		fmt.Println(res.Allowed, res.Degraded, err)
	}
	// Output:
	// true true <nil>
	// false true <nil>
}

func ExampleWithObserver() {
	backend := memory.New()
	defer backend.Close()
	denied := 0
	limiter := throttr.NewRateLimit(backend,
		throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventDenied {
				denied++
			}
		}),
		throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			fmt.Println(e.Kind, e.Key, e.Result.Count, "of", e.Result.Limit)
		}))
	for range 3 {
		limiter.Hit(context.Background(), "user:42", time.Minute, 2)
	}
	fmt.Println("denied:", denied)
	// Output:
	// allowed user:42 1 of 2
	// allowed user:42 2 of 2
	// denied user:42 3 of 2
	// denied: 1
}
