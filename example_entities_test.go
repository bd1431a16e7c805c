package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

func ExampleNewRateLimit_memory() {
	backend := memory.New() // no server
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	fmt.Println(limiter.Hit(context.Background(), "user:42", time.Minute, 100))
	// Output: allowed, 1 of 100, 99 remaining <nil>
}

func ExampleRateLimit_Window() {
	ctx := context.Background()
	srv, _, limiter, end := exampleServer()
	defer end()

	limiter.Hit(ctx, "user:42", time.Minute, 10)
	limiter.Hit(ctx, "user:42", time.Minute, 10)
	srv.Advance(45 * time.Second)
	w, err := limiter.Window(ctx, "user:42", time.Minute)
	fmt.Println(w.Count, w.Left, err)
	// Output: 2 15s <nil>
}

func ExampleRateLimit_Delete() {
	ctx := context.Background()
	_, _, limiter, end := exampleServer()
	defer end()

	limiter.Hit(ctx, "user:42", time.Second, 10)
	limiter.Hit(ctx, "user:42", time.Hour, 1000)
	_, err := limiter.Delete(ctx, "user:42", time.Second, time.Hour)
	fmt.Println(err)
	fmt.Println(limiter.Get(ctx, "user:42", time.Second))
	fmt.Println(limiter.Get(ctx, "user:42", time.Hour))
	// Output:
	// <nil>
	// 0 <nil>
	// 0 <nil>
}

// hangUp makes srv close every connection on which it gets a QUERY.
func hangUp(srv *mockserver.Server) {
	srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true})
}

func ExampleWithPolicy() {
	ctx := context.Background()
	srv, client, _, end := exampleServer()
	defer end()
	hangUp(srv)

	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		limiter := throttr.NewRateLimit(client.Backend(), throttr.WithPolicy(p))
		res, err := limiter.Hit(ctx, "user:42", time.Hour, 100)
		fmt.Printf("%v: allowed %v, degraded %v, error %v\n", p, res.Allowed, res.Degraded, err != nil)
	}
	// Output:
	// return an error: allowed false, degraded false, error true
	// allow hits: allowed true, degraded true, error false
	// deny hits: allowed false, degraded true, error false
}

func ExampleWithFallback() {
	ctx := context.Background()
	srv, client, _, end := exampleServer()
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

func ExampleWithTimeout() {
	ctx := context.Background()
	srv, client, _, end := exampleServer()
	defer end()
	srv.Inject(mockserver.Fault{Delay: time.Second})

	limiter := throttr.NewRateLimit(client.Backend(),
		throttr.WithTimeout(20*time.Millisecond), throttr.WithPolicy(throttr.AllowHits))
	res, err := limiter.Hit(ctx, "user:42", time.Hour, 100)
	fmt.Println(res.Allowed, res.Degraded, err)
	// Output: true true <nil>
}

func ExampleWithObserver() {
	ctx := context.Background()
	_, client, _, end := exampleServer()
	defer end()

	count := map[throttr.EventKind]int{}
	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithObserver(
		throttr.ObserverFunc(func(_ context.Context, e throttr.Event) { count[e.Kind]++ })))
	for range 5 {
		limiter.Hit(ctx, "user:42", time.Hour, 2)
	}
	limiter.Reset(ctx, "user:42", time.Hour)
	fmt.Println(count[throttr.EventAllowed], count[throttr.EventDenied], count[throttr.EventReset])
	// Output: 2 3 1
}

func ExampleLogTo() {
	ctx := context.Background()
	_, client, _, end := exampleServer()
	defer end()

	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "took", "retry_after": // these vary
				return slog.Attr{}
			}
			return a
		},
	}))
	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithObserver(throttr.LogTo(logger)))
	limiter.Hit(ctx, "user:42", time.Hour, 0)
	// Output: level=INFO msg="rate limit: denied" key=user:42 scale=1h0m0s limit=0 increment=1 count=1
}

func ExampleNewEntities() {
	ctx := context.Background()
	_, _, limiter, end := exampleServer()
	defer end()

	entities := throttr.NewEntities(limiter)
	for range 2 {
		err := entities.Check(ctx, "user:42", "upload", 1, time.Minute, nil)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// throttr: rate limit exceeded: "user:42" may "upload" 1 times in 1m0s; retry in 1m0s
}

func ExampleEntities_Check() {
	ctx := context.Background()
	_, _, limiter, end := exampleServer()
	defer end()
	entities := throttr.NewEntities(limiter)

	check := func(entity string) {
		err := entities.Check(ctx, entity, "upload", 1, time.Minute, map[string]any{"request": 7})
		var denied *throttr.RateLimitError
		switch {
		case err == nil:
			fmt.Println("200")
		case errors.As(err, &denied):
			fmt.Println("429, Retry-After:", denied.RetryAfter.Seconds(), "request:", denied.Metadata["request"])
		case errors.Is(err, throttr.ErrValidation):
			fmt.Println("500:", err)
		default:
			fmt.Println("503:", err)
		}
	}
	check("user:42")
	check("user:42")
	check("")
	// Output:
	// 200
	// 429, Retry-After: 60 request: 7
	// 500: throttr: invalid rate limit: entity is empty
}

func ExampleEntities_Execute() {
	ctx := context.Background()
	_, _, limiter, end := exampleServer()
	defer end()
	entities := throttr.NewEntities(limiter)

	upload := func(context.Context) error {
		fmt.Println("uploading")
		return nil
	}
	for range 2 {
		err := entities.Execute(ctx, "user:42", "upload", 1, time.Minute, nil, upload)
		fmt.Println("limited:", errors.Is(err, throttr.ErrRateLimited))
	}
	// Output:
	// uploading
	// limited: false
	// limited: true
}

func ExampleEntities_Status() {
	ctx := context.Background()
	_, _, limiter, end := exampleServer()
	defer end()
	entities := throttr.NewEntities(limiter)

	entities.Check(ctx, "user:42", "upload", 3, time.Minute, nil)
	res, err := entities.Status(ctx, "user:42", "upload", 3, time.Minute) // does not count
	fmt.Println(res, err)
	// Output: allowed, 1 of 3, 2 remaining <nil>
}

func ExampleEntities_Reset() {
	ctx := context.Background()
	_, _, limiter, end := exampleServer()
	defer end()
	entities := throttr.NewEntities(limiter)

	entities.Check(ctx, "user:42", "upload", 1, time.Minute, nil)
	fmt.Println(entities.Reset(ctx, "user:42", "upload", time.Minute))
	fmt.Println(entities.Check(ctx, "user:42", "upload", 1, time.Minute, nil))
	// Output:
	// <nil>
	// <nil>
}
