package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

func ExampleWithObserver_several() {
	backend := memory.New()
	defer backend.Close()
	denied := 0
	limiter := throttr.NewRateLimit(backend,
		throttr.WithObserver(throttr.ObserverFunc(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventDenied {
				denied++
			}
		})),
		throttr.WithObserver(throttr.ObserverFunc(func(_ context.Context, e throttr.Event) {
			fmt.Println(e.Kind, e.Key, e.Result.Count, "of", e.Result.Limit)
		})))
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

func ExampleLogTo_metadata() {
	backend := memory.New()
	defer backend.Close()
	logger := slog.New(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "took", "retry_after": // these vary
				return slog.Attr{}
			}
			return a
		},
	}))
	limiter := throttr.NewRateLimit(backend, throttr.WithObserver(throttr.LogTo(logger)))
	throttr.NewEntities(limiter).Check(context.Background(), "user:42", "upload", 0, time.Minute, map[string]any{"plan": "free"})
	// Output: {"level":"INFO","msg":"rate limit: denied","entity":"user:42","operation":"upload","scale":60000000000,"limit":0,"increment":1,"count":1,"metadata":{"plan":"free"}}
}

// down is a backend that fails.
type down struct{ throttr.Backend }

func (down) Hit(context.Context, string, time.Duration, uint64, uint64) (throttr.Window, error) {
	return throttr.Window{}, errors.New("the server is down")
}

func ExampleWithPolicy_limitOfZero() {
	limiter := throttr.NewRateLimit(down{}, throttr.WithPolicy(throttr.AllowHits))
	for _, limit := range []uint64{100, 0} { // 0 blocks a user
		res, err := limiter.Hit(context.Background(), "user:42", time.Minute, limit)
		fmt.Println(res.Allowed, res.Degraded, err)
	}
	// Output:
	// true true <nil>
	// false true <nil>
}

func ExampleWithFallback_policy() {
	// A fallback that fails, too: the policy decides.
	limiter := throttr.NewRateLimit(down{}, throttr.WithFallback(down{}), throttr.WithPolicy(throttr.DenyHits))
	res, err := limiter.Hit(context.Background(), "user:1", time.Minute, 100)
	fmt.Println(res.Allowed, res.Degraded, err)
	// Output:
	// false true <nil>
}

func ExampleNewEntities_pairs() {
	ctx := context.Background()
	backend := memory.New()
	defer backend.Close()
	entities := throttr.NewEntities(throttr.NewRateLimit(backend))
	// Joined with a colon, both pairs would be a:b:c.
	fmt.Println(entities.Check(ctx, "a", "b:c", 1, time.Minute, nil))
	fmt.Println(entities.Check(ctx, "a:b", "c", 1, time.Minute, nil))
	// Output:
	// <nil>
	// <nil>
}
