package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

func ExampleWithObserver_several() {
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

// down is a backend that fails.
type down struct{ window.Unimplemented }

func (down) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func (down) Hit(context.Context, string, throttr.Limit, uint64) (window.Window, error) {
	return window.Window{}, errors.New("the server is down")
}

func ExampleWithPolicy_limitOfZero() {
	limiter := throttr.NewRateLimit(down{}, throttr.WithPolicy(throttr.AllowHits))
	for _, limit := range []uint64{100, 0} { // 0 blocks a user
		res, err := limiter.Hit(context.Background(), "user:42", time.Minute, limit)
		fmt.Println(res.Allowed, res.Degraded, err)
	}
	// Output:
	// true true <nil>
	// false false <nil>
}

func ExampleWithFallback_policy() {
	// A fallback that fails, too: the policy decides.
	limiter := throttr.NewRateLimit(down{}, throttr.WithFallback(down{}), throttr.WithPolicy(throttr.DenyHits))
	res, err := limiter.Hit(context.Background(), "user:1", time.Minute, 100)
	fmt.Println(res.Allowed, res.Degraded, err)
	// Output:
	// false true <nil>
}
