package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
)

func Example() {
	exports := inflight.Limit{Name: "exports", Max: 1, Lease: 10 * time.Second}
	limiter := inflight.New(memory.New()) // or a backend of throttr.Open, for all processes together
	defer limiter.Close()

	ctx := context.Background()
	h, ok, err := limiter.TryAcquire(ctx, "customer:7", exports, 1)
	if err != nil {
		fmt.Println("no decision:", err)
		return
	}
	fmt.Println(ok, h.Valid())
	_, ok, _ = limiter.TryAcquire(ctx, "customer:7", exports, 1)
	fmt.Println(ok)
	h.Release()
	// Output:
	// true true
	// false
}

// A call that waits is served in its turn, or fails when its context ends.
func ExampleLimiter_Acquire() {
	limiter := inflight.New(memory.New())
	defer limiter.Close()
	limit := inflight.Limit{Name: "imports", Max: 2}

	first, _ := limiter.Acquire(context.Background(), "customer:7", limit, 2)
	time.AfterFunc(10*time.Millisecond, first.Release)
	second, err := limiter.Acquire(context.Background(), "customer:7", limit, 1)
	fmt.Println(second.Valid(), err)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err = limiter.Acquire(ctx, "customer:7", limit, 2)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// true <nil>
	// true
}

// What works for long watches the context, and what can't be undone is preceded by Valid.
func ExampleHold_Valid() {
	limiter := inflight.New(memory.New())
	defer limiter.Close()
	h, err := limiter.Acquire(context.Background(), "report", inflight.Limit{Max: 1}, 1)
	if err != nil {
		return
	}
	defer h.Release()

	report := func(ctx context.Context) string { return "report" }(h.Context())
	if h.Valid() {
		fmt.Println("sent:", report)
	}
	// Output: sent: report
}
